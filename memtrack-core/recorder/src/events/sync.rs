//! The atomics and cells that `chunk` uses. The model checker (`tests/loom`) compiles `chunk.rs` with loom's types in
//! their place.

pub(crate) use crate::internal_bytes::{add as hold, subtract as release};
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

/// `std`'s cell with loom's interface.
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Creates a cell.
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to read through.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls `f` with a pointer to write through.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
