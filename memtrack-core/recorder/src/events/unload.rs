//! Handles a library that the program unloads: the records of its code are closed before other code can be mapped at
//! its addresses. `dlclose` calls the C library's, and then processes the unloaded binaries; if a call bypasses it (a
//! program that has another `dlclose`, or one in which memtrack is not part of the program), unloaded libraries are
//! noticed when a session starts, when a snapshot is taken, and twice a second while a recording is streamed.
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

/// Returns the C library's function: the next one with that name.
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

/// Closes a library, as the C library's function does.
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
        // Preserve the C library's value for the caller.
        // SAFETY: every thread has one.
        let errno = unsafe { *libc::__errno_location() };
        binaries::process_unloaded();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    answer
}
