//! Enables scopes in unit tests, for one test at a time.

use memtrack_recorder::switch;
use std::sync::{Mutex, MutexGuard, PoisonError};

static SWITCH: Mutex<()> = Mutex::new(());

/// Runs `test` with scopes enabled, while no other such test is running.
pub(crate) fn with_scopes<R>(test: impl FnOnce() -> R) -> R {
    struct DisableOnDrop<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);
    impl Drop for DisableOnDrop<'_> {
        fn drop(&mut self) {
            switch::set(switch::SCOPES, false);
        }
    }
    let _disable_on_drop = DisableOnDrop(SWITCH.lock().unwrap_or_else(PoisonError::into_inner));
    switch::set(switch::SCOPES, true);
    test()
}
