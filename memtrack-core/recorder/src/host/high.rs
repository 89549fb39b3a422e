//! How high the host heap rose, while small blocks are only counted: the recorded blocks cannot say it, because the highest of
//! many estimates is mostly the one that is furthest off. The threads' sums are exact, so they are added up at some moments:
//! with each block that is recorded, once in between where it is long until the next one is picked, when a tracker reads the sums,
//! and at the end; with several threads no more often than every few microseconds. The highest of these sums was reached for
//! certain; and between two looks no more can have been live than at the first, and all that was handed out until the second.
//!
//! A moment is not chosen by what the samples say, so what was live then can be estimated from them. A picked block tells of
//! itself that a look follows, so the moment is the one before it.
//!
//! Nobody waits: a thread that finds another one looking leaves it to that.
//!
//! **Why count instead of taking the maximum of the estimates?** For the tiny model of `examples/benches/cost` that
//! maximum was 10 to 30 MB where 2.85 were live, and no interval for a fixed moment covers it. With several threads there
//! are at least 2,048 ticks for each between two sums, because the other threads' sums are in other processors' caches.

use crate::recorder::{Bounds, Sums, bounds, ticks};
use memtrack_model::snapshot::CountedPeak;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The host's place among a thread's sums.
const SLOT: usize = super::HOST_SLOT;
/// Where threads are many, so many ticks for each of them pass from one look to the next: their sums are in the caches of other
/// processors.
const TICKS_PER_THREAD: u64 = 2048;
/// How often the reader at the end tries.
const TRIES: usize = 10_000;

/// Whether blocks are or were only counted in this session.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// A thread is looking. All that follows is written by it alone.
static BUSY: AtomicBool = AtomicBool::new(false);

/// What was handed out and given back before the session began.
static BASE_ALLOCATED: AtomicU64 = AtomicU64::new(0);
static BASE_FREED: AtomicU64 = AtomicU64::new(0);
/// What had been given back at the last look.
static FREED: AtomicU64 = AtomicU64::new(0);
static HIGHEST: AtomicI64 = AtomicI64::new(0);
static HIGHEST_TICKS: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);
static SINCE_TICKS: AtomicU64 = AtomicU64::new(0);
static UNTIL_TICKS: AtomicU64 = AtomicU64::new(0);
/// When the next look is due.
static NEXT_TICKS: AtomicU64 = AtomicU64::new(0);

/// Whether blocks may have been only counted, so that it is to be looked.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Nothing is only counted yet.
pub(super) fn clear() {
    IS_ON.store(false, Ordering::Relaxed);
    BUSY.store(false, Ordering::Relaxed);
    for number in
        [&BASE_ALLOCATED, &BASE_FREED, &FREED, &HIGHEST_TICKS, &SINCE_TICKS, &UNTIL_TICKS, &NEXT_TICKS]
    {
        number.store(0, Ordering::Relaxed);
    }
    HIGHEST.store(0, Ordering::Relaxed);
    MOST.store(0, Ordering::Relaxed);
}

/// A session begins with these sums.
pub(crate) fn begins_with(sums: &Sums) {
    BASE_ALLOCATED.store(sums.allocated_bytes, Ordering::Relaxed);
    BASE_FREED.store(sums.freed_bytes, Ordering::Relaxed);
}

/// From now on blocks may be only counted. What was before, the events say.
#[cold]
pub(crate) fn begin() {
    if is_on() || BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    if !is_on() {
        FREED.store(BASE_FREED.load(Ordering::Relaxed), Ordering::Relaxed);
        // Where threads come and go all the time, nothing is said of what was before.
        if let Some(read) = (0..TRIES).find_map(|_| bounds(SLOT)) {
            FREED.store(read.freed_first, Ordering::Relaxed);
            let now = ticks();
            note(&read, now);
            SINCE_TICKS.store(now, Ordering::Relaxed);
        }
        IS_ON.store(true, Ordering::Relaxed);
    }
    BUSY.store(false, Ordering::Release);
}

/// Looks, if it is time. The moment is `stamp`: what is stamped up to it has happened, by all that is known.
#[inline(always)]
pub(crate) fn look(stamp: u64) {
    if stamp >= NEXT_TICKS.load(Ordering::Relaxed) && !BUSY.swap(true, Ordering::Acquire) {
        if let Some(read) = bounds(SLOT) {
            note(&read, stamp);
        }
        BUSY.store(false, Ordering::Release);
    }
}

/// Looks, if it is time, in a thread whose newest stamp is `newest`.
#[inline(never)]
pub(super) fn look_after(newest: u64) {
    if is_on() {
        look(ticks().max(newest));
    }
}

/// A tracker looks at the sums.
#[inline(always)]
pub(crate) fn look_now() {
    if is_on() {
        look(ticks());
    }
}

#[inline(always)]
fn note(read: &Bounds, stamp: u64) {
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let before = get(&BASE_ALLOCATED).wrapping_sub(get(&BASE_FREED));
    let net = |freed: u64| read.allocated.wrapping_sub(freed).wrapping_sub(before) as i64;
    let (live, most) = (net(read.freed_last), net(get(&FREED)));
    if live > HIGHEST.load(Ordering::Relaxed) {
        HIGHEST.store(live, Ordering::Relaxed);
        HIGHEST_TICKS.store(stamp, Ordering::Relaxed);
    }
    if most > MOST.load(Ordering::Relaxed) {
        MOST.store(most, Ordering::Relaxed);
    }
    FREED.store(read.freed_first, Ordering::Relaxed);
    // Another thread's stamp may be the newer one.
    UNTIL_TICKS.store(stamp.max(get(&UNTIL_TICKS)), Ordering::Relaxed);
    let wait = if read.threads > 1 { read.threads * TICKS_PER_THREAD } else { 0 };
    NEXT_TICKS.store(if wait == 0 { 0 } else { stamp + wait }, Ordering::Relaxed);
}

/// What was seen so far, and now, `at` these ticks; none where every block was recorded.
pub(crate) fn so_far(at: u64) -> Option<CountedPeak> {
    if !is_on() {
        return None;
    }
    let is_mine = (0..TRIES).any(|_| {
        let taken = BUSY.swap(true, Ordering::Acquire);
        if taken {
            std::hint::spin_loop();
        }
        !taken
    });
    if is_mine && let Some(read) = (0..TRIES).find_map(|_| bounds(SLOT)) {
        note(&read, at);
    }
    let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let bytes = |number: &AtomicI64| u64::try_from(number.load(Ordering::Relaxed)).unwrap_or(0);
    let seen = CountedPeak {
        ticks: get(&HIGHEST_TICKS),
        bytes: bytes(&HIGHEST),
        most_bytes: bytes(&MOST),
        since_ticks: get(&SINCE_TICKS),
        until_ticks: get(&UNTIL_TICKS),
        events_before: None,
    };
    if is_mine {
        BUSY.store(false, Ordering::Release);
    }
    Some(seen)
}
