//! C's heap as a source of events, for the preload library of `memtrack run --host`. Sizes are the usable sizes that
//! the allocator reports, because `free` receives no size. This way, the sums of allocations and frees agree.

use memtrack_recorder::{allocator, errno, switch};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns whether heap calls are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    switch::is_on(switch::HOST)
}

/// Whether the allocator does not report the sizes of its blocks.
static WITHOUT_SIZES: AtomicBool = AtomicBool::new(false);

/// Declares that the allocator does not report the sizes of its blocks. Must be called before recording begins.
pub fn set_without_sizes() {
    WITHOUT_SIZES.store(true, Ordering::Relaxed);
}

/// Returns whether the allocator does not report the sizes of its blocks, so that every block must be recorded.
pub(super) fn is_without_sizes() -> bool {
    WITHOUT_SIZES.load(Ordering::Relaxed)
}

/// Records an allocation; null means that it failed.
pub fn allocated(block: *mut c_void, size_bytes: usize) {
    allocator::after_alloc(block.cast(), size_bytes);
    if block.is_null() {
        report_refused(size_bytes);
    }
}

/// Reports that the heap refused a request. `errno` is preserved.
#[cold]
fn report_refused(size_bytes: usize) {
    errno::preserving(|| allocator::report_refusal(size_bytes));
}

/// Calls `act` without recording its allocations.
pub fn unrecorded<R>(act: impl FnOnce() -> R) -> R {
    let _inside = memtrack_recorder::reentry::enter();
    act()
}

/// Records that a block is about to be freed.
pub fn will_be_freed(block: *mut c_void, size_bytes: usize) {
    allocator::before_free(block.cast(), size_bytes);
}

/// Calls the closure, which returns the new block and its size, and records the call as a `realloc`.
pub fn reallocated(
    old: *mut c_void,
    old_bytes: usize,
    realloc: impl FnOnce() -> (*mut c_void, usize),
) -> *mut c_void {
    let mut size_bytes = 0;
    let realloc = || {
        let (new, bytes) = realloc();
        size_bytes = bytes;
        (new.cast(), bytes)
    };
    let new = allocator::record_realloc(old.cast(), old_bytes, realloc).cast::<c_void>();
    if new.is_null() {
        report_refused(size_bytes);
    }
    new
}

/// Records an allocated block that was not only counted ([`allocator::count_alloc`]), of an allocator that takes its memory
/// from elsewhere than `malloc`, and knows the sizes of its blocks. `errno` is preserved.
#[inline(never)]
pub fn record_object(block: *mut c_void, size_bytes: usize) {
    errno::preserving(|| allocator::after_alloc(block.cast(), size_bytes));
}

/// Records that a block that was not only counted ([`allocator::count_untracked_free`]) is about to be freed. `errno` is
/// preserved.
#[inline(never)]
pub fn record_object_free(block: *mut c_void, size_bytes: usize) {
    errno::preserving(|| allocator::before_free(block.cast(), size_bytes));
}
