//! C's heap as a source of events, for the preload library of `memtrack run --host`. Sizes are what the allocator says a
//! block has room for, since a `free` names none: so the sums of both agree.
#![allow(unsafe_code)]

use memtrack_recorder::{host, switch};
use std::ffi::c_void;

/// Whether anything is to be told.
#[inline(always)]
pub fn is_on() -> bool {
    switch::is_on(switch::HOST)
}

/// A block was handed out; null: it could not be.
pub fn allocated(block: *mut c_void, size_bytes: usize) {
    host::after_alloc(block.cast(), size_bytes);
    if block.is_null() {
        refused(size_bytes);
    }
}

/// The heap refused a request. What the program reads as the reason stays as it was.
#[cold]
fn refused(size_bytes: usize) {
    // SAFETY: every thread has an `errno`.
    unsafe {
        let errno = *libc::__errno_location();
        host::refused(size_bytes);
        *libc::__errno_location() = errno;
    }
}

/// Does something whose memory is not to be recorded.
pub fn unrecorded<R>(act: impl FnOnce() -> R) -> R {
    let _inside = memtrack_recorder::reentry::enter();
    act()
}

/// A block is about to be given back.
pub fn will_be_freed(block: *mut c_void, size_bytes: usize) {
    host::before_free(block.cast(), size_bytes);
}

/// A block becomes another one by `realloc`, which returns it and its size.
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
    let new = host::around_realloc(old.cast(), old_bytes, realloc).cast::<c_void>();
    if new.is_null() {
        refused(size_bytes);
    }
    new
}
