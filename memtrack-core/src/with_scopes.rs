//! For unit tests: turns scopes on for one test at a time.

use memtrack_recorder::switch;
use std::sync::{Mutex, MutexGuard, PoisonError};

static SWITCH: Mutex<()> = Mutex::new(());

/// Runs `test` with scopes on, and no other such test at the same time.
pub(crate) fn with_scopes<R>(test: impl FnOnce() -> R) -> R {
    struct Off<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);
    impl Drop for Off<'_> {
        fn drop(&mut self) {
            switch::set(switch::SCOPES, false);
        }
    }
    let _off = Off(SWITCH.lock().unwrap_or_else(PoisonError::into_inner));
    switch::set(switch::SCOPES, true);
    test()
}
