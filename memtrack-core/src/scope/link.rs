//! The pointer that the scope set is made of: empty, or a node that lives forever. It is the only unsafe of `scope/`.
//! A `OnceLock` would do without, but a child forked while another thread was setting it would wait for that thread
//! forever.

#![allow(unsafe_code)]

use super::nodes::ScopeNode;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An atomic `Option<&'static ScopeNode>`.
pub(super) struct Link(AtomicPtr<ScopeNode>);

impl Link {
    /// A link to nothing.
    pub(super) const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// A link to `node`.
    pub(super) fn to(node: Option<&'static ScopeNode>) -> Self {
        Self(AtomicPtr::new(as_pointer(node)))
    }

    /// The node it links to.
    #[inline]
    pub(super) fn get(&self) -> Option<&'static ScopeNode> {
        // SAFETY: the pointer is null or came from a `&'static ScopeNode` (`as_pointer` is the only source); the
        // acquire load pairs with the release of whoever stored it, so the node is seen fully built.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the link, whatever it was.
    pub(super) fn set(&self, node: Option<&'static ScopeNode>) {
        self.0.store(as_pointer(node), Ordering::Release);
    }

    /// Sets the link to `node` if it still is `expected`; says whether it did.
    pub(super) fn replace(&self, expected: Option<&'static ScopeNode>, node: &'static ScopeNode) -> bool {
        let (expected, node) = (as_pointer(expected), as_pointer(Some(node)));
        self.0.compare_exchange(expected, node, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The pointer stored for `node`. It is never written through.
fn as_pointer(node: Option<&'static ScopeNode>) -> *mut ScopeNode {
    node.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut())
}
