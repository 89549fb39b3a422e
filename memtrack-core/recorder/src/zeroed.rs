//! Tables that begin as zeros.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;

/// `count` values that are all zeros, whose memory the system provides page by page when they are used.
///
/// # Panics
/// When they have no size, or do not fit into the address space.
///
/// # Safety
/// All zeros must be a `T`.
pub(crate) unsafe fn zeroed<T>(count: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(count).expect("a table fits into the address space");
    assert!(layout.size() > 0, "a table has room");
    // SAFETY: the size was looked at.
    let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if first.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: just allocated for a slice of that length, and each value is valid, as the caller promises.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, count)) }
}
