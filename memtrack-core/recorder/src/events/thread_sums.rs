//! The sums over all threads, at a cost that depends only on the number of live threads: a tracker reads them after
//! every operator, and a program that once had four thousand threads would otherwise pay for them for ever. The sums of
//! all threads that have ended are combined; when the state of such a thread is reused, its sums are subtracted again.
//!
//! Adding up takes no lock: a counter is increased whenever the list of states changes, and adding up is retried if the
//! counter has changed meanwhile (a seqlock).
//!
//! **Why not read every state?** After a burst of 4,000 threads, an operator cost 370 µs; now it costs 58 ns.
#![allow(unsafe_code)]

use super::current_thread::{MAX_STATES, SHARED_STATE_COUNT};
use super::threads::{DEVICE_SLOTS, ThreadState};
use super::totals::{Sums, Totals};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// The states in use: the first [`COUNT`] entries, in any order.
static ACTIVE: [AtomicPtr<ThreadState>; MAX_STATES + SHARED_STATE_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_STATES + SHARED_STATE_COUNT];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The combined sums of all states that are not in [`ACTIVE`], by device slot.
static ENDED: [Totals; DEVICE_SLOTS] = [const { Totals::new() }; DEVICE_SLOTS];
/// Counts changes of the statics above: odd during a change.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The maximum number of attempts to add up.
const MAX_ATTEMPTS: usize = 100;

/// Performs a change of the statics above. The caller holds the lock of the exclusive states, so that there is one
/// change at a time.
fn change(act: impl FnOnce()) {
    let changes = CHANGES.load(Ordering::Relaxed);
    CHANGES.store(changes + 1, Ordering::Relaxed);
    fence(Ordering::Release);
    act();
    CHANGES.store(changes + 2, Ordering::Release);
}

/// Adds a state that is in use from now on. The caller holds the lock of the exclusive states.
pub(super) fn add_thread(state: &'static ThreadState) {
    change(|| {
        ENDED.iter().zip(state.all_totals()).for_each(|(ended, totals)| ended.subtract(totals));
        set_active(state, COUNT.fetch_add(1, Ordering::Relaxed));
    });
}

/// Removes a state that is no longer in use. The caller holds the lock of the exclusive states.
pub(super) fn remove_thread(state: &'static ThreadState) {
    change(|| {
        ENDED.iter().zip(state.all_totals()).for_each(|(ended, totals)| ended.absorb(totals));
        let last = COUNT.fetch_sub(1, Ordering::Relaxed) - 1;
        // SAFETY: the entries below the count are states, which are never freed.
        let moved = unsafe { &*ACTIVE[last].load(Ordering::Relaxed) };
        set_active(moved, state.active_index.load(Ordering::Relaxed));
    });
}

fn set_active(state: &'static ThreadState, index: usize) {
    ACTIVE[index].store(std::ptr::from_ref(state).cast_mut(), Ordering::Release);
    state.active_index.store(index, Ordering::Relaxed);
}

/// Returns the sums of a slot over all threads; `None` when threads start and end too frequently.
pub fn sums(slot: usize) -> Option<Sums> {
    (0..MAX_ATTEMPTS).find_map(|_| {
        let before = CHANGES.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            std::hint::spin_loop();
            return None;
        }
        let mut sums = Sums::default();
        ENDED[slot].add_to(&mut sums);
        for entry in &ACTIVE[..COUNT.load(Ordering::Relaxed)] {
            // SAFETY: the pointer is null or points to a state, which is never freed.
            if let Some(state) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
                state.totals(slot).add_to(&mut sums);
            }
        }
        fence(Ordering::Acquire);
        (CHANGES.load(Ordering::Relaxed) == before).then_some(sums)
    })
}

/// Reads the bytes that all threads have allocated and freed in a slot, in an order that yields strict bounds even though
/// threads continue meanwhile: first the freed bytes, then the allocated bytes, then the freed bytes again. So at some
/// moment in between, the live bytes were at least `allocated - freed_last`. Until the next reading, the live bytes are
/// at most the bytes allocated by then minus `freed_first`. Returns `None` while threads start or end.
pub(crate) fn bounds(slot: usize) -> Option<Bounds> {
    let before = CHANGES.load(Ordering::Acquire);
    if !before.is_multiple_of(2) {
        return None;
    }
    let active = &ACTIVE[..COUNT.load(Ordering::Relaxed)];
    // SAFETY: the pointer is null or points to a state, which is never freed.
    let active = || active.iter().filter_map(|entry| unsafe { entry.load(Ordering::Acquire).as_ref() });
    let sum_of = |part: fn(&Totals) -> u64| {
        let sum = active().fold(part(&ENDED[slot]), |sum, state| sum.wrapping_add(part(state.totals(slot))));
        fence(Ordering::Acquire);
        sum
    };
    let bounds = Bounds {
        freed_first: sum_of(Totals::freed_bytes),
        allocated: sum_of(Totals::allocated_bytes),
        freed_last: sum_of(Totals::freed_bytes),
        threads: active().count() as u64,
    };
    (CHANGES.load(Ordering::Relaxed) == before).then_some(bounds)
}

/// The result of [`bounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) freed_first: u64,
    pub(crate) allocated: u64,
    pub(crate) freed_last: u64,
    /// The number of live threads.
    pub(crate) threads: u64,
}

/// Resets the list in a forked child: all states belong to the parent's threads.
pub(super) fn reset() {
    COUNT.store(0, Ordering::Relaxed);
    ENDED.iter().for_each(Totals::reset);
    CHANGES.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::current_thread::InHook;
    use crate::events::threads;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    /// A device that no other test uses.
    const SLOT: usize = 27;

    fn sum_over_all_states() -> u64 {
        threads::states().map(|state| state.totals(SLOT).allocations()).sum()
    }

    #[test]
    fn sums_stay_complete_while_threads_start_and_end() {
        let begin = threads::sums(SLOT).allocations;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let now = threads::sums(SLOT).allocations;
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
            let count = || (0..10).for_each(|_| InHook::enter().1.state.totals(SLOT).count_alloc(8));
            for _ in 0..100 {
                thread::scope(|short| drop([(); 6].map(|()| short.spawn(count))));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(sum_over_all_states() - begin, 6000);
        // A thread's state may be released after the thread was joined, which does not change the sum.
        assert_eq!(threads::sums(SLOT).allocations - begin, 6000);
    }

    #[test]
    fn ended_threads_are_not_visited() {
        let together = Barrier::new(300);
        let work = || {
            InHook::enter();
            together.wait();
        };
        let threads: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..300).map(|_| scope.spawn(work)).collect();
            all.into_iter().map(|thread| thread.join()).collect()
        });
        assert_eq!(threads.len(), 300);
        assert!(threads::states().count() >= 300);
        // Threads of other tests may be alive.
        assert!(COUNT.load(Ordering::Relaxed) < 150, "{}", COUNT.load(Ordering::Relaxed));
    }
}
