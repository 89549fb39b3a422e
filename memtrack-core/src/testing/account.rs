//! The account of a test's memory, from the start of the test to its verdict.

use super::verdict::{ExceededLimits, Leaks, LimitCheck};
use memtrack_recorder::accounts::{self, Account, Books, Unattributed};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::ScopeHandle;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time to wait for ending threads to free their memory before it counts as a leak. This is long enough for
/// the threads to be scheduled on a busy machine. Only a test that would otherwise fail waits.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The message for a test that limits the host heap although allocations on the heap are not recorded.
pub(super) const NO_ALLOCATOR_MESSAGE: &str =
    "the test limits the host heap, but memtrack does not record it. Add this to the program of the \
    tests (tests/NAME.rs, or src/lib.rs under #[cfg(test)]):
    #[global_allocator]
    static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
or, if only devices are meant, limit only them: devices(…)";

/// A running test.
pub(super) struct RunningTest {
    name: String,
    account: Account,
}

impl RunningTest {
    /// Starts a test and opens an account for it.
    ///
    /// # Panics
    /// Panics if the test cannot be observed, or if it `needs_the_heap` and the heap is not recorded.
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
        if needs_the_heap && !accounts::is_heap_tracked() {
            drop(account);
            panic!("{name} cannot be held to its memory limits: {NO_ALLOCATOR_MESSAGE}");
        }
        Self { name, account }
    }

    pub(super) fn scope(&self) -> ScopeHandle {
        self.account.scope()
    }

    /// Ends the test without a verdict and returns its accounts, and whether the heap was recorded.
    pub(super) fn end(self) -> (Books, bool) {
        self.account.end();
        let is_heap_tracked = accounts::is_heap_tracked();
        let Self { name, account } = self;
        let books = account.close();
        let _inside = reentry::enter();
        drop(name);
        (books, is_heap_tracked)
    }

    /// Ends the test. After that, its account records only frees of its memory.
    pub(super) fn finish(self, check: &LimitCheck<'_>) -> FinishedTest {
        let Self { name, account } = self;
        account.end();
        // Read the allocations of other threads now, before waiting for late frees.
        let unattributed = account.unattributed();
        let ended = Instant::now();
        let leaks = || {
            let _inside = reentry::enter();
            check.leaks_too_much(&account.left())
        };
        while leaks() && ended.elapsed() < MAX_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        let books = account.books();
        FinishedTest { name, account, books, unattributed }
    }
}

/// A test whose body has ended. Its account stays open to record frees of its memory during a second run.
pub(super) struct FinishedTest {
    name: String,
    account: Account,
    books: Books,
    unattributed: Vec<Unattributed>,
}

impl FinishedTest {
    /// Returns whether the test left more memory than allowed, not counting allocations whose stacks identify them as
    /// one-time allocations. The counted memory may still come from other one-time allocations; only a second run can rule that out.
    pub(super) fn leaks(&self, check: &LimitCheck<'_>) -> bool {
        reentry::clone_for_program(|| check.leaks(&self.books))
    }

    /// Starts a second run of the same test, or returns `None` if it cannot be observed.
    pub(super) fn begin_second_run(&self) -> Option<RunningTest> {
        let account = Account::open().ok()?;
        let _inside = reentry::enter();
        Some(RunningTest { name: self.name.clone(), account })
    }

    /// Returns the limits that the test exceeded. `second` is the second run, if there was one.
    pub(super) fn check(self, check: &LimitCheck<'_>, second: Option<SecondRun>) -> Option<ExceededLimits> {
        let Self { name, account, books, unattributed } = self;
        let later = account.close();
        let exceeded = reentry::clone_for_program(|| {
            let leaks = match &second {
                None => Leaks::Once,
                Some(SecondRun::EndedDifferently(how)) => Leaks::NotComparable(how),
                Some(SecondRun::Ended(second)) => Leaks::Twice { later: &later, second: &second.books },
            };
            check.find_exceeded(&name, &books, leaks, &unattributed)
        });
        let _inside = reentry::enter();
        drop((name, books, later, unattributed));
        if let Some(SecondRun::Ended(second)) = second {
            drop(second);
        }
        exceeded
    }
}

/// The result of a test's second run.
pub(super) enum SecondRun {
    /// The run ended in the same way as the first one.
    Ended(FinishedTest),
    /// The run ended differently, so the memory that it left cannot be compared. The value describes how it ended.
    EndedDifferently(&'static str),
}
