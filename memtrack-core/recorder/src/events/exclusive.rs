//! A value of a thread that one piece of code uses at a time.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

/// A value that is lent to one closure at a time. Unlike a `RefCell`, it lends nothing that must be dropped, which would cost
/// registers on the hot path, and never panics.
pub(crate) struct Exclusive<T> {
    value: UnsafeCell<T>,
    is_lent: Cell<bool>,
}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), is_lent: Cell::new(false) }
    }

    /// Calls `act` with the value. Returns `None` if an outer call has lent it, as when a signal handler interrupts that call. A
    /// value whose call unwinds stays lent.
    #[inline(always)]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_lent.replace(true) {
            return None;
        }
        // SAFETY: the value is used only here, and the flag shows that no outer call uses it. The type is not `Sync`.
        let result = act(unsafe { &mut *self.value.get() });
        self.is_lent.set(false);
        Some(result)
    }
}

#[cfg(test)]
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
