//! The pointers that make up the sets of scopes and names. Each is empty or points to a value that is never freed. This
//! file contains the only unsafe code in `scope/`. A `OnceLock` would need no unsafe code, but a child that is forked
//! while another thread is setting it would wait for that thread forever.

#![allow(unsafe_code)]

use crate::zeroed::Zeroed;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An atomic `Option<&'static T>`.
#[repr(transparent)]
pub(crate) struct Link<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Link<T> {
    /// Returns the target.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T`, because only `fill` sets it. The acquire load pairs
        // with the release in `fill`, so the target is fully initialized.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets an empty link to `target`. If the link is not empty, returns its target as an error.
    pub(crate) fn fill(&self, target: &'static T) -> Result<(), &'static T> {
        let target = ptr::from_ref(target).cast_mut();
        match self.0.compare_exchange(ptr::null_mut(), target, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            // SAFETY: the pointer is not null, because the exchange failed. The other reasons are the same as in `get`.
            // No code writes through the pointer.
            Err(winner) => Err(unsafe { &*winner }),
        }
    }
}

/// Creates `count` empty links, whose pages take up memory only once they are used. A forked child keeps them.
pub(crate) fn empty_links<T>(count: usize) -> Zeroed<Link<T>> {
    crate::internal_bytes::add_inherited(count * size_of::<Link<T>>());
    // SAFETY: a link is a pointer, and the null pointer, which is all zeros, is an empty link.
    unsafe { Zeroed::new(count) }
}
