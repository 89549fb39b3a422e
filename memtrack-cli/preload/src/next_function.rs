//! The functions that the program would have called without this library.

use memtrack_cuda::run;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the function at an address.
///
/// # Safety
/// `F` must be the type of a pointer to it.
#[inline(always)]
pub(super) unsafe fn function_at<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the sizes are equal, and the caller guarantees the type.
    unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) }
}

/// A function of the next library in the loader's search order, of the type `F`.
pub(super) struct NextFunction<F> {
    name: &'static CStr,
    /// Null until the function has been looked up.
    found: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

/// Declares functions of the next library, by name and C signature, and `look_up_all` for all of them.
macro_rules! next_functions {
    ($($function:ident = $name:literal($($parameters:tt)*) $(-> $result:ty)?;)*) => {
        $(static $function: NextFunction<unsafe extern "C" fn($($parameters)*) $(-> $result)?> =
            // SAFETY: this is the function's signature.
            unsafe { NextFunction::new($name) };)*

        /// Looks up all functions, while the process has one thread.
        fn look_up_all() {
            $($function.address();)*
            // A function may be missing, and the program must not see the error message.
            // SAFETY: the call returns this thread's last message.
            unsafe { libc::dlerror() };
        }
    };
}
pub(super) use next_functions;

impl<F: Copy> NextFunction<F> {
    /// Creates the function with this name.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to it.
    pub(super) const unsafe fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()), function: PhantomData }
    }

    /// Returns the function. Returns `None` if there is no such function, or if this thread is already looking
    /// up a function, because the C library may allocate memory for the lookup.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<F> {
        // SAFETY: the address is that of the function, and the creator has guaranteed its type.
        self.address().map(|found| unsafe { function_at(found) })
    }

    /// Returns the function's address, as [`Self::get`] returns the function.
    #[inline(always)]
    pub(super) fn address(&self) -> Option<*mut c_void> {
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
