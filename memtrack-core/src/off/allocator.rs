//! The allocator of a build without the recorder, which reports no events.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// A global allocator that forwards to another one; without the recorder it does nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackingAllocator<A = System> {
    inner: A,
}

impl TrackingAllocator {
    /// Wraps the system's allocator.
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

// SAFETY: every call is passed to the inner allocator.
unsafe impl<A: GlobalAlloc> GlobalAlloc for TrackingAllocator<A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}

/// Returns the bytes that memtrack itself uses: 0 without the recorder.
pub fn own_bytes() -> i64 {
    0
}

/// Returns the bytes that memtrack itself uses on the program's heap, for tests: 0 without the recorder.
#[doc(hidden)]
pub fn own_heap_bytes() -> i64 {
    0
}
