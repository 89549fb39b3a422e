//! The account of a running test, from its beginning to the verdict.

use super::verdict::{Judge, Leaks, Over};
use memtrack_recorder::accounts::{self, Account, Books, Unattributed};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::ScopeHandle;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time that a test waits for ending threads to free their memory, before that counts as a leak:
/// long enough for them to be scheduled on a busy machine. Only a test that would fail waits.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The message if the heap's allocations are not recorded.
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
    /// Begins a test and opens its account.
    ///
    /// # Panics
    /// Panics when the test cannot be observed, or it `needs_the_heap` and the heap is not recorded.
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
            panic!("{name} cannot be held to its memory limits: {NO_ALLOCATOR}");
        }
        Self { name, account }
    }

    pub(super) fn scope(&self) -> ScopeHandle {
        self.account.scope()
    }

    /// Ends the test, to read its accounts without a verdict.
    pub(super) fn end(self) -> (Books, bool) {
        self.account.end();
        let is_heap_tracked = accounts::is_heap_tracked();
        let Self { name, account } = self;
        let books = account.close();
        let _inside = reentry::enter();
        drop(name);
        (books, is_heap_tracked)
    }

    /// Ends the test: from here on its account is only read, and its late frees are subtracted.
    pub(super) fn finish(self, judge: &Judge<'_>) -> Finished {
        let Self { name, account } = self;
        account.end();
        // Each part is compared with its limit at once: parts within their limits are not reported.
        let others = account.unattributed();
        let ended = Instant::now();
        let leaks = || {
            let _inside = reentry::enter();
            judge.leaks_too_much(&account.left())
        };
        while leaks() && ended.elapsed() < MAX_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        let books = account.books();
        Finished { name, account, books, others }
    }
}

/// A test whose body has run. Its account stays open, so that frees of its memory by a second run are
/// recorded.
pub(super) struct Finished {
    name: String,
    account: Account,
    books: Books,
    others: Vec<Unattributed>,
}

impl Finished {
    /// Returns whether it left more than allowed that its stacks do not excuse, so that only a second run can
    /// distinguish one-time allocations from leaks.
    pub(super) fn leaks(&self, judge: &Judge<'_>) -> bool {
        reentry::clone_for_program(|| judge.leaks(&self.books))
    }

    /// Begins the second run of the same test; `None` when it cannot be observed.
    pub(super) fn again(&self) -> Option<Tested> {
        let account = Account::open().ok()?;
        let _inside = reentry::enter();
        Some(Tested { name: self.name.clone(), account })
    }

    /// Returns the limits it exceeded. `second` is the second run, if there was one.
    pub(super) fn judge(self, judge: &Judge<'_>, second: Option<SecondRun>) -> Option<Over> {
        let Self { name, account, books, others } = self;
        let later = account.close();
        let over = reentry::clone_for_program(|| {
            let leaks = match &second {
                None => Leaks::Once,
                Some(SecondRun::EndedDifferently(how)) => Leaks::NotComparable(how),
                Some(SecondRun::Ended(second)) => Leaks::Twice { later: &later, second: &second.books },
            };
            judge.judge(&name, &books, leaks, &others)
        });
        let _inside = reentry::enter();
        drop((name, books, later, others));
        if let Some(SecondRun::Ended(second)) = second {
            drop(second);
        }
        over
    }
}

/// The result of the second run of a test.
pub(super) enum SecondRun {
    /// It ended as the first one did.
    Ended(Finished),
    /// It ended differently, so its remaining memory cannot be compared.
    EndedDifferently(&'static str),
}
