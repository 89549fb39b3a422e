//! Measures the peak of the host heap while small blocks are only counted. Recorded blocks are not suited to this,
//! because the highest of many estimates is usually the one with the largest error. The threads' sums are exact, so
//! they are added up at certain moments: with each block that is recorded, whenever as many bytes as the mean gap
//! between two samples have been allocated without a sample, when a tracker reads the sums, and at the end. With
//! several threads, this happens no more often than every few microseconds. The highest of these sums was certainly
//! reached. Between two observations, the live bytes were at most those of the first observation plus all bytes
//! allocated until the second.
//!
//! The choice of a moment must not depend on the samples, so that the live bytes at that moment can be estimated from
//! them. If a sampled block triggers an observation, the moment just before the block is therefore used.
//!
//! No thread waits. A thread skips its observation if another thread is already observing.
//!
//! **Why count instead of taking the maximum of the estimates?** On the tiny model of `examples/benches/cost`, that
//! maximum was 10 to 30 MB when 2.85 MB were live, and no confidence interval for a fixed moment covers it. With
//! several threads, at least 2,048 ticks per thread pass between two observations, because the other threads' sums are
//! in other processors' caches.

use super::thread_sums::{Bounds, bounds};
use super::totals::Sums;
use crate::clock::ticks;
use memtrack_model::snapshot::CountedPeak;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The index of the host's sums in a thread's slots.
const SLOT: usize = crate::host::HOST_SLOT;
/// The minimum number of ticks per thread between two observations if there are several threads, because their sums are
/// in the caches of other processors.
const TICKS_PER_THREAD: u64 = 2048;
/// The maximum number of attempts to read the sums.
const MAX_ATTEMPTS: usize = 10_000;

/// Whether some of this session's blocks may only have been counted.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether a thread is observing. Only that thread writes the statics below.
static IS_OBSERVING: AtomicBool = AtomicBool::new(false);

/// The bytes that were allocated and freed before the session began.
static BASE_ALLOCATED: AtomicU64 = AtomicU64::new(0);
static BASE_FREED: AtomicU64 = AtomicU64::new(0);
/// The bytes that had been freed by the last observation.
static FREED: AtomicU64 = AtomicU64::new(0);
static HIGHEST: AtomicI64 = AtomicI64::new(0);
static HIGHEST_TICKS: AtomicU64 = AtomicU64::new(0);
static UPPER_BOUND: AtomicI64 = AtomicI64::new(0);
static SINCE_TICKS: AtomicU64 = AtomicU64::new(0);
static UNTIL_TICKS: AtomicU64 = AtomicU64::new(0);
/// The stamp at which the next observation is due.
static NEXT_TICKS: AtomicU64 = AtomicU64::new(0);

/// Returns whether some blocks may only have been counted, so that observations are needed.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Resets everything for a new session, in which every block has been recorded so far, so that observations are not
/// needed yet.
pub(crate) fn clear() {
    IS_ON.store(false, Ordering::Relaxed);
    IS_OBSERVING.store(false, Ordering::Relaxed);
    for number in
        [&BASE_ALLOCATED, &BASE_FREED, &FREED, &HIGHEST_TICKS, &SINCE_TICKS, &UNTIL_TICKS, &NEXT_TICKS]
    {
        number.store(0, Ordering::Relaxed);
    }
    HIGHEST.store(0, Ordering::Relaxed);
    UPPER_BOUND.store(0, Ordering::Relaxed);
}

/// Sets the sums that a session starts with.
pub(crate) fn set_base(sums: &Sums) {
    BASE_ALLOCATED.store(sums.allocated_bytes, Ordering::Relaxed);
    BASE_FREED.store(sums.freed_bytes, Ordering::Relaxed);
}

/// Starts observing, because from now on some blocks may only be counted. The peak up to now can be determined from the
/// recorded events.
#[cold]
pub(crate) fn begin() {
    if is_on() || IS_OBSERVING.swap(true, Ordering::Acquire) {
        return;
    }
    if !is_on() {
        FREED.store(BASE_FREED.load(Ordering::Relaxed), Ordering::Relaxed);
        // If the sums cannot be read, because threads start and end continually, the first interval between two
        // observations begins with the session rather than now.
        if let Some(read) = (0..MAX_ATTEMPTS).find_map(|_| bounds(SLOT)) {
            FREED.store(read.freed_first, Ordering::Relaxed);
            let now = ticks();
            update(&read, now);
            SINCE_TICKS.store(now, Ordering::Relaxed);
        }
        IS_ON.store(true, Ordering::Relaxed);
        publish();
    }
    IS_OBSERVING.store(false, Ordering::Release);
}

/// Observes the sums if an observation is due. `stamp` is the time of the observation, in ticks. All events that the
/// caller knows of happened at or before it.
#[inline(always)]
pub(crate) fn observe(stamp: u64) {
    if stamp >= NEXT_TICKS.load(Ordering::Relaxed) && !IS_OBSERVING.swap(true, Ordering::Acquire) {
        if let Some(read) = bounds(SLOT) {
            update(&read, stamp);
        }
        IS_OBSERVING.store(false, Ordering::Release);
    }
}

/// Observes the sums if an observation is due, on a thread whose newest stamp is `newest`.
#[inline(never)]
pub(crate) fn observe_after(newest: u64) {
    if is_on() {
        observe(ticks().max(newest));
    }
}

/// Observes the sums for a tracker that is reading them.
#[inline(always)]
pub(crate) fn observe_now() {
    if is_on() {
        observe(ticks());
    }
}

#[inline(always)]
fn update(read: &Bounds, stamp: u64) {
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let before = get(&BASE_ALLOCATED).wrapping_sub(get(&BASE_FREED));
    let net = |freed: u64| read.allocated.wrapping_sub(freed).wrapping_sub(before) as i64;
    let (live, upper_bound) = (net(read.freed_last), net(get(&FREED)));
    if live > HIGHEST.load(Ordering::Relaxed) {
        HIGHEST.store(live, Ordering::Relaxed);
        HIGHEST_TICKS.store(stamp, Ordering::Relaxed);
    }
    if upper_bound > UPPER_BOUND.load(Ordering::Relaxed) {
        UPPER_BOUND.store(upper_bound, Ordering::Relaxed);
    }
    FREED.store(read.freed_first, Ordering::Relaxed);
    // Another thread's stamp may be newer.
    UNTIL_TICKS.store(stamp.max(get(&UNTIL_TICKS)), Ordering::Relaxed);
    let wait = if read.threads > 1 { read.threads * TICKS_PER_THREAD } else { 0 };
    NEXT_TICKS.store(if wait == 0 { 0 } else { stamp + wait }, Ordering::Relaxed);
    publish();
}

/// Passes the peak so far to the command, if recording goes to shared memory. Called by the thread that is observing.
#[inline]
fn publish() {
    use crate::shared_memory::{is_connected, publish_counted_peak};
    if is_connected() {
        publish_counted_peak(&observed());
    }
}

/// Returns the peak according to the observations so far.
#[inline]
fn observed() -> CountedPeak {
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let bytes = |number: &AtomicI64| u64::try_from(number.load(Ordering::Relaxed)).unwrap_or(0);
    CountedPeak {
        ticks: get(&HIGHEST_TICKS),
        bytes: bytes(&HIGHEST),
        most_bytes: bytes(&UPPER_BOUND),
        since_ticks: get(&SINCE_TICKS),
        until_ticks: get(&UNTIL_TICKS),
        events_before: None,
    }
}

/// Returns the peak so far, including the current sums, or `None` if every block was recorded. `at` is the current time
/// in ticks.
pub(crate) fn so_far(at: u64) -> Option<CountedPeak> {
    if !is_on() {
        return None;
    }
    let is_locked = (0..MAX_ATTEMPTS).any(|_| {
        let is_busy = IS_OBSERVING.swap(true, Ordering::Acquire);
        if is_busy {
            std::hint::spin_loop();
        }
        !is_busy
    });
    if is_locked && let Some(read) = (0..MAX_ATTEMPTS).find_map(|_| bounds(SLOT)) {
        update(&read, at);
    }
    let peak = observed();
    if is_locked {
        IS_OBSERVING.store(false, Ordering::Release);
    }
    Some(peak)
}
