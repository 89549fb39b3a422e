//! What all threads' sums come to, at the cost of those that live: a tracker asks after every operator, and a program that
//! once had four thousand threads would pay for them ever after. The sums of threads that have ended are kept as one; a
//! state that is used again takes its own out of it.
//!
//! Who adds up takes no lock: changes are counted, and it begins again when there was one meanwhile.
//!
//! **Why not read every state?** After a burst of 4,000 threads, an operator cost 370 µs; now it costs 58 ns.
#![allow(unsafe_code)]

use super::mine::{MAX_STATES, SHARED};
use super::threads::{DEVICE_SLOTS, ThreadState};
use super::totals::{Sums, Totals};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// States that are in use, the first [`COUNT`] of these, in any order.
static LIVING: [AtomicPtr<ThreadState>; MAX_STATES + SHARED] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_STATES + SHARED];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What the others' sums come to, per slot.
static ENDED: [Totals; DEVICE_SLOTS] = [const { Totals::new() }; DEVICE_SLOTS];
/// Counts changes of all of this: odd while there is one.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// How often adding up begins again.
const TRIES: usize = 100;

/// Makes a change. The caller holds the lock of the states that belong to one thread, so there is one at a time.
fn change(act: impl FnOnce()) {
    let changes = CHANGES.load(Ordering::Relaxed);
    CHANGES.store(changes + 1, Ordering::Relaxed);
    fence(Ordering::Release);
    act();
    CHANGES.store(changes + 2, Ordering::Release);
}

/// A state is used from now on. The caller holds the lock of the states that belong to one thread.
pub(super) fn begins(state: &'static ThreadState) {
    change(|| {
        ENDED.iter().zip(&state.slots).for_each(|(ended, slot)| ended.let_go(&slot.totals));
        put(state, COUNT.fetch_add(1, Ordering::Relaxed));
    });
}

/// A state is used no longer. The caller holds the lock of the states that belong to one thread.
pub(super) fn ends(state: &'static ThreadState) {
    change(|| {
        ENDED.iter().zip(&state.slots).for_each(|(ended, slot)| ended.take_in(&slot.totals));
        let last = COUNT.fetch_sub(1, Ordering::Relaxed) - 1;
        // SAFETY: below the count are states, which are never freed.
        let moved = unsafe { &*LIVING[last].load(Ordering::Relaxed) };
        put(moved, state.place.load(Ordering::Relaxed));
    });
}

fn put(state: &'static ThreadState, place: usize) {
    LIVING[place].store(std::ptr::from_ref(state).cast_mut(), Ordering::Release);
    state.place.store(place, Ordering::Relaxed);
}

/// The sums of a slot over all threads; `None` when they come and go too fast.
pub fn sums(slot: usize) -> Option<Sums> {
    (0..TRIES).find_map(|_| {
        let before = CHANGES.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            std::hint::spin_loop();
            return None;
        }
        let mut sums = Sums::default();
        ENDED[slot].add_to(&mut sums);
        for place in &LIVING[..COUNT.load(Ordering::Relaxed)] {
            // SAFETY: null, or a state, which is never freed.
            if let Some(state) = unsafe { place.load(Ordering::Acquire).as_ref() } {
                state.slots[slot].totals.add_to(&mut sums);
            }
        }
        fence(Ordering::Acquire);
        (CHANGES.load(Ordering::Relaxed) == before).then_some(sums)
    })
}

/// What all threads have handed out and given back in a slot, in bytes, in a form that allows for strict statements though
/// threads go on meanwhile: what was given back is read `first`, then what was handed out, then what was given back `last`. So at a
/// moment between no less was out than what was handed out less what was given back `last`; and until this is read again, no
/// more than what will have been handed out by then less what was given back `first`. `None` while threads come or go.
pub(crate) fn bounds(slot: usize) -> Option<Bounds> {
    let before = CHANGES.load(Ordering::Acquire);
    if !before.is_multiple_of(2) {
        return None;
    }
    let living = &LIVING[..COUNT.load(Ordering::Relaxed)];
    // SAFETY: null, or a state, which is never freed.
    let living = || living.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    let all = |part: fn(&Totals) -> u64| {
        let sum =
            living().fold(part(&ENDED[slot]), |sum, state| sum.wrapping_add(part(&state.slots[slot].totals)));
        fence(Ordering::Acquire);
        sum
    };
    let bounds = Bounds {
        freed_first: all(Totals::freed_bytes),
        allocated: all(Totals::allocated_bytes),
        freed_last: all(Totals::freed_bytes),
        threads: living().count() as u64,
    };
    (CHANGES.load(Ordering::Relaxed) == before).then_some(bounds)
}

/// What [`bounds`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) freed_first: u64,
    pub(crate) allocated: u64,
    pub(crate) freed_last: u64,
    /// How many threads live.
    pub(crate) threads: u64,
}

/// In the child of a fork: all states are the parent's.
pub(super) fn forget_all() {
    COUNT.store(0, Ordering::Relaxed);
    ENDED.iter().for_each(Totals::reset);
    CHANGES.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::mine::InHook;
    use crate::recorder::threads;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    /// A device of no other test's.
    const SLOT: usize = 27;

    fn by_all_states() -> u64 {
        threads::states().map(|state| state.slots[SLOT].totals.allocations()).sum()
    }

    #[test]
    fn sums_lose_nothing_while_threads_come_and_go() {
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
            let count = || (0..10).for_each(|_| InHook::enter().1.state.slots[SLOT].totals.count_alloc(8));
            for _ in 0..100 {
                thread::scope(|short| drop([(); 6].map(|()| short.spawn(count))));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(by_all_states() - begin, 6000);
        // A thread's end may come after its join, and changes nothing.
        assert_eq!(threads::sums(SLOT).allocations - begin, 6000);
    }

    #[test]
    fn threads_that_have_ended_are_not_asked() {
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
        // Of other tests some may live.
        assert!(COUNT.load(Ordering::Relaxed) < 150, "{}", COUNT.load(Ordering::Relaxed));
    }
}
