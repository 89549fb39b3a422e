//! The functions that the program would have called without this library.

use memtrack_cuda::run;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library in the loader's search order.
pub(super) struct NextFunction {
    name: &'static CStr,
    /// Null until the function has been looked up.
    found: AtomicPtr<c_void>,
}

impl NextFunction {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Returns the function. Returns `None` if there is no such function, or if this thread is already looking
    /// up a function, because the C library may allocate memory for the lookup.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { Some(found) }
    }

    #[cold]
    fn find(&self) -> Option<*mut c_void> {
        thread_local! {
            static FINDING: Cell<bool> = const { Cell::new(false) };
        }
        if FINDING.replace(true) {
            return None;
        }
        let found = run::next_symbol(self.name);
        FINDING.set(false);
        self.found.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}
