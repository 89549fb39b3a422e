//! A value of a thread that one piece of code uses at a time.
#![allow(unsafe_code)]

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::cell::UnsafeCell;

/// A value that is lent to one closure at a time. Unlike a `RefCell`, it lends nothing that must be dropped and never
/// panics. Only debug builds check that it is not lent twice.
pub(crate) struct Exclusive<T> {
    value: UnsafeCell<T>,
    #[cfg(debug_assertions)]
    is_lent: Cell<bool>,
}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            #[cfg(debug_assertions)]
            is_lent: Cell::new(false),
        }
    }

    /// Calls `act` with the value. `act` must not call this method of the same value: debug builds return `None` then.
    #[inline(always)]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        #[cfg(debug_assertions)]
        if self.is_lent.replace(true) {
            return None;
        }
        // SAFETY: the value is used only here, and not by `act`. The type is not `Sync`.
        let result = act(unsafe { &mut *self.value.get() });
        #[cfg(debug_assertions)]
        self.is_lent.set(false);
        Some(result)
    }

    /// Returns the value, for the one place of the hot path in which a closure would be called instead of inlined (10 ns).
    ///
    /// # Safety
    /// The value must not be lent while the reference is used.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn lend(&self) -> &mut T {
        // SAFETY: the caller guarantees that there is no other reference.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::Exclusive;

    #[test]
    fn a_value_is_lent_once_at_a_time() {
        let value = Exclusive::new(1);
        let inner = value.with(|outer| {
            *outer += 1;
            value.with(|_| ())
        });
        assert_eq!((inner, value.with(|value| *value)), (Some(None), Some(2)));
    }
}
