//! Handles a library that the program unloads: the stacks that contain its code are completed before other code can be
//! mapped at its addresses. This `dlclose` calls the C library's `dlclose` and then processes the unloaded binaries. If a
//! call bypasses it (because the program has another `dlclose`, or because memtrack is in a library), unloaded libraries
//! are detected when a session starts, when a snapshot is taken, and twice a second while a recording is streamed.
//!
//! **How does a forked child detect unloaded libraries?** The dynamic linker's lock may be held for ever in the child, so
//! the child calls `_dl_find_object` for each binary that it knows. When the table of binaries is replaced, the old table
//! is freed only after the hooks that may use it have ended.
#![allow(unsafe_code)]

use super::binaries;
use crate::{errno, reentry, switch};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The C library's `dlclose`; null until it is looked up.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The number of calls of this `dlclose`.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Returns how often the program has closed a library. Until this number changes, the handles of libraries keep their meaning.
pub fn closed_libraries() -> usize {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns the C library's `dlclose`: the next function with that name.
fn real() -> Option<Dlclose> {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: the call only looks up a name.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: this is the function of that name, which has this type.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlclose>(real) })
}

/// Closes a library, like the C library's `dlclose`.
///
/// # Safety
/// As for the C library's function: `handle` must come from `dlopen` and must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real() else { return -1 };
    #[cfg(target_arch = "x86_64")]
    let suspended = if reentry::is_inside() { None } else { crate::python::suspend() };
    // SAFETY: the caller guarantees that the handle is valid.
    let result = unsafe { real(handle) };
    CLOSED.fetch_add(1, Ordering::Relaxed);
    #[cfg(target_arch = "x86_64")]
    drop(suspended);
    if switch::is_on(switch::EVENTS) && !reentry::is_inside() {
        let _inside = reentry::enter();
        errno::preserving(binaries::process_unloaded);
    }
    result
}
