//! The program unloads a library: what is known of its code ends before other code can lie at its addresses. `dlclose` is
//! the C library's, with a look at what is left afterwards; where a call goes past it (a program that has another
//! `dlclose`, or one in which memtrack is not part of the program), unloaded libraries are noticed when a session starts,
//! when a snapshot is taken, and twice a second while a recording is streamed.
//!
//! **How does a forked child notice?** The loader's lock may be held there for ever, so it calls `_dl_find_object` for
//! each binary that it knows. A table that is replaced is freed only after the hooks that may use it have ended.
#![allow(unsafe_code)]

use super::binaries;
use crate::{reentry, switch};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The C library's `dlclose`; null until it was looked up.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's function, of which nothing is known but that it is the next of that name.
fn real() -> Option<Dlclose> {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: a look-up by name.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the function of that name.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlclose>(real) })
}

/// As the C library's.
///
/// # Safety
/// As the C library's: `handle` comes from `dlopen` and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real() else { return -1 };
    // SAFETY: the caller's argument and promise.
    let answer = unsafe { real(handle) };
    if switch::is_on(switch::EVENTS) && !reentry::is_inside() {
        let _inside = reentry::enter();
        // What the C library left there is the caller's.
        // SAFETY: every thread has one.
        let errno = unsafe { *libc::__errno_location() };
        binaries::notice_unloaded();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    answer
}
