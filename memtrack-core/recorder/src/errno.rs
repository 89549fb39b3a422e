//! The C library's `errno`, which the program must find as it left it wherever memtrack runs in one of its calls.
#![allow(unsafe_code)]

/// Calls `act` and restores `errno`.
#[inline(always)]
pub fn preserving<R>(act: impl FnOnce() -> R) -> R {
    let before = get();
    let result = act();
    set(before);
    result
}

/// Returns the value of `errno`.
#[inline(always)]
pub fn get() -> i32 {
    // SAFETY: every thread has an `errno`.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
#[inline(always)]
pub fn set(value: i32) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value };
}
