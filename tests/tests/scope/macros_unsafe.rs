//! `unsafe fn`s can be tracked; the attribute neither hides their unsafety nor makes other code unsafe.

#![allow(unsafe_code)]
#![deny(warnings)]

use memtrack_core::track_memory;

/// # Safety
/// `pointer` is valid for reads.
#[track_memory]
unsafe fn read(pointer: *const u8) -> u8 {
    // SAFETY: the caller guarantees that `pointer` is valid.
    unsafe { *pointer }
}

/// # Safety
/// `pointer` is valid for reads.
#[track_memory]
pub unsafe extern "C" fn read_foreign(pointer: *const u8) -> u8 {
    // SAFETY: the caller guarantees that `pointer` is valid.
    unsafe { *pointer }
}

#[test]
fn unsafe_functions_behave_as_without_the_attribute() {
    // SAFETY: the pointers come from references.
    assert_eq!(unsafe { read(&1) + read_foreign(&2) }, 3);
}
