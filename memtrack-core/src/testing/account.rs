//! A running test: its account, from its beginning to the verdict.

use super::verdict::{Judge, Over};
use memtrack_recorder::accounts::{self, Account, Books};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::ScopeHandle;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test may wait for threads that are ending to free their memory, before that counts as a leak: long enough for them
/// to come to run on a machine that does much else. Only a test that would fail waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// The message where the heap's allocations are not seen.
pub(super) const NO_ALLOCATOR: &str =
    "the host's heap is limited, and memtrack does not see it. Add to the program of the \
    tests (tests/NAME.rs, or src/lib.rs under #[cfg(test)]):
    #[global_allocator]
    static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
or, if only devices are meant, limit only them: devices(…)";

/// A running test.
pub(super) struct Tested {
    name: String,
    account: Account,
}

impl Tested {
    /// # Panics
    /// When the test cannot be watched, or it `needs_the_heap` and the heap is not seen.
    #[track_caller]
    pub(super) fn begin(name: impl FnOnce() -> String, needs_the_heap: bool) -> Self {
        let name = {
            let _inside = reentry::enter();
            name()
        };
        let account = match Account::open() {
            Ok(account) => account,
            Err(why) => panic!("{name} cannot be held to its memory limits: {why}"),
        };
        if needs_the_heap && !accounts::sees_the_heap() {
            drop(account);
            panic!("{name} cannot be held to its memory limits: {NO_ALLOCATOR}");
        }
        Self { name, account }
    }

    pub(super) fn scope(&self) -> ScopeHandle {
        self.account.scope()
    }

    /// Ends it, to read its accounts without judging them.
    pub(super) fn end(self) -> (Books, bool) {
        self.account.end();
        let sees_the_heap = accounts::sees_the_heap();
        let Self { name, account } = self;
        let books = account.close();
        let _inside = reentry::enter();
        drop(name);
        (books, sees_the_heap)
    }

    /// Ends it; returns which limits it exceeded.
    pub(super) fn judge(self, judge: &Judge<'_>) -> Option<Over> {
        let Self { name, account } = self;
        account.end();
        // Its parts are compared with what they may be at once: nothing is said of what is in order.
        let others = account.others();
        let ended = Instant::now();
        let leaks = || {
            let _inside = reentry::enter();
            judge.leaks_too_much(&account.left())
        };
        while leaks() && ended.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let books = account.close();
        let over = reentry::hand_over(|| judge.judge(&name, &books, &others));
        let _inside = reentry::enter();
        drop((name, books, others));
        over
    }
}
