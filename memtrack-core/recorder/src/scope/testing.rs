//! For unit tests: scopes on for one test at a time, and an observer for one thread.

use super::observer::ScopeObserver;
use crate::switch;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static SWITCH: Mutex<()> = Mutex::new(());

thread_local! {
    static OBSERVER: Cell<Option<&'static dyn ScopeObserver>> = const { Cell::new(None) };
}

/// Keeps other tests from turning scopes on or off.
pub(crate) fn hold_switch() -> MutexGuard<'static, ()> {
    SWITCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` with scopes on, alone.
pub(crate) fn with_scopes<R>(test: impl FnOnce() -> R) -> R {
    struct Off<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);
    impl Drop for Off<'_> {
        fn drop(&mut self) {
            switch::set(switch::SCOPES, false);
        }
    }
    let _off = Off(hold_switch());
    switch::set(switch::SCOPES, true);
    test()
}

/// Sets this thread's observer, which takes precedence over the registered one.
pub(crate) fn observe_this_thread(observer: Option<&'static dyn ScopeObserver>) {
    OBSERVER.set(observer);
}

pub(super) fn observer_of_this_thread() -> Option<&'static dyn ScopeObserver> {
    OBSERVER.get()
}
