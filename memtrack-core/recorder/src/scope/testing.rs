//! Unit test helpers that turn scopes on for one test at a time and set an observer for one thread.

use super::observer::ScopeObserver;
use crate::switch;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static SWITCH: Mutex<()> = Mutex::new(());

thread_local! {
    static OBSERVER: Cell<Option<&'static dyn ScopeObserver>> = const { Cell::new(None) };
}

/// Prevents other tests from turning scopes on or off while the returned guard is held.
pub(crate) fn hold_switch() -> MutexGuard<'static, ()> {
    SWITCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` with scopes turned on, while no other test does so.
pub(crate) fn with_scopes<R>(test: impl FnOnce() -> R) -> R {
    struct TurnOff<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);
    impl Drop for TurnOff<'_> {
        fn drop(&mut self) {
            switch::set(switch::SCOPES, false);
        }
    }
    let _turn_off = TurnOff(hold_switch());
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
