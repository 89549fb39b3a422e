//! A counting allocator, the reference for memtrack's totals: it wraps `TrackingAllocator`, so that it counts exactly the
//! requests of the program and of memtrack.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicI64, Ordering};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// An allocator that counts live bytes and forwards all calls to another allocator.
pub struct Counting<A>(A);

impl<A> Counting<A> {
    /// Wraps `inner`.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }
}

/// Returns the program's live bytes.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.load(Ordering::SeqCst)
}

fn count(block: *mut u8, bytes: i64) -> *mut u8 {
    if !block.is_null() {
        LIVE_BYTES.fetch_add(bytes, Ordering::SeqCst);
    }
    block
}

// SAFETY: every call is forwarded to the inner allocator unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: upheld by the caller.
        count(unsafe { self.0.alloc(layout) }, layout.size() as i64)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: upheld by the caller.
        count(unsafe { self.0.alloc_zeroed(layout) }, layout.size() as i64)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(block, -(layout.size() as i64));
        // SAFETY: upheld by the caller.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: upheld by the caller.
        count(unsafe { self.0.realloc(block, layout, new_size) }, new_size as i64 - layout.size() as i64)
    }
}
