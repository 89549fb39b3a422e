//! The pointer that the sets of scopes and names consist of: empty, or to a value that lives for ever. It contains
//! the only unsafe code of `scope/`. A `OnceLock` would need none, but a child forked while another thread was
//! setting it would wait for that thread for ever.

#![allow(unsafe_code)]

use crate::zeroed::Zeroed;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An atomic `Option<&'static T>`.
#[repr(transparent)]
pub(super) struct Link<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Link<T> {
    /// Returns the target.
    #[inline]
    pub(super) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T` (`fill` is the only source); the acquire load pairs
        // with its release, so the target is seen fully built.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets an empty link to `target`. If it is no longer empty, returns its target.
    pub(super) fn fill(&self, target: &'static T) -> Result<(), &'static T> {
        let target = ptr::from_ref(target).cast_mut();
        match self.0.compare_exchange(ptr::null_mut(), target, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            // SAFETY: not null, or the exchange had not failed; otherwise as in `get`. It is never written through.
            Err(winner) => Err(unsafe { &*winner }),
        }
    }
}

/// Makes `count` empty links, whose memory the system provides page by page when they are used. A forked child keeps
/// them.
pub(super) fn empty_links<T>(count: usize) -> Zeroed<Link<T>> {
    crate::internal_bytes::add_inherited(count * size_of::<Link<T>>());
    // SAFETY: a link is a pointer, and the null pointer, which is all zeros, is an empty one.
    unsafe { Zeroed::new(count) }
}
