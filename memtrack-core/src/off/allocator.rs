//! The allocator in builds without the recorder. It reports no events.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// A global allocator that forwards to another one. Without the recorder, it does nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackingAllocator<A = System> {
    inner: A,
}

impl TrackingAllocator {
    /// Wraps the system allocator.
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> TrackingAllocator<A> {
    /// Wraps `inner`.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: every call is passed on to the inner allocator.
unsafe impl<A: GlobalAlloc> GlobalAlloc for TrackingAllocator<A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}

/// Returns the number of bytes that memtrack itself uses, which is 0 without the recorder.
pub fn own_bytes() -> i64 {
    0
}

/// Returns the number of bytes that memtrack itself uses on the program's heap, for tests. It is 0 without
/// the recorder.
#[doc(hidden)]
pub fn internal_heap_bytes() -> i64 {
    0
}
