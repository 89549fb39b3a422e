//! `unsafe fn`s can be followed; the attribute neither hides nor spreads their unsafety.

#![allow(unsafe_code)]
#![deny(warnings)]

use memtrack_core::track_memory;

/// # Safety
/// `pointer` is valid for reads.
#[track_memory]
unsafe fn read(pointer: *const u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { *pointer }
}

/// # Safety
/// `pointer` is valid for reads.
#[track_memory]
pub unsafe extern "C" fn read_foreign(pointer: *const u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { *pointer }
}

#[test]
fn unsafe_functions_do_what_they_did() {
    // SAFETY: the pointers come from references.
    assert_eq!(unsafe { read(&1) + read_foreign(&2) }, 3);
}
