//! The recorder's clock: the processor's time-stamp counter if it runs at the same constant rate on all cores,
//! otherwise the system's monotonic clock in nanoseconds. Ticks are converted to time only in reports, using two
//! readings, each of which reads the recorder's clock and the system's at the same moment.
//!
//! The clock never goes back: if the counter jumps back, as on a virtual machine that was suspended, migrated or
//! restored, the clock continues from the newest stamp.
//!
//! **Why the time-stamp counter?** A reading takes 10 ns instead of the 23 ns of `CLOCK_MONOTONIC`: the difference is a
//! tenth of the time that an event takes.
#![allow(unsafe_code)]

use crate::settings;
use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The total number of ticks that the counter has gone back so far. It is added to each reading.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// If the counter is behind a stamp by more than this (a few milliseconds), it has gone back. Smaller differences are
/// normal: stamps run ahead of the clock by a few ticks, and the counters of two processors differ slightly.
const STEP_BACK: u64 = 1 << 24;

/// Returns the current time in ticks. Takes 10 ns with the counter and 23 ns with the system's clock (measured on the
/// machine of `research/`).
#[inline(always)]
pub fn ticks() -> u64 {
    raw().wrapping_add(OFFSET.load(Ordering::Relaxed))
}

/// Returns the current time in ticks for an event of a thread whose newest stamp is `newest`. The result is not before
/// the start of the session. If the clock has gone back, it continues from the later of `newest` and that start.
#[inline(always)]
pub(crate) fn ticks_after(newest: u64) -> u64 {
    let now = ticks();
    let start = settings::start_ticks();
    if now.wrapping_add(STEP_BACK) < newest.max(start) {
        continue_from(newest.max(start))
    } else {
        now.max(start)
    }
}

/// Makes the clock continue from `newest`, for all threads.
#[cold]
fn continue_from(newest: u64) -> u64 {
    let offset = OFFSET.load(Ordering::Relaxed);
    let now = raw().wrapping_add(offset);
    if now < newest {
        let more = offset.wrapping_add(newest - now);
        // If the exchange fails, another thread has corrected the same jump.
        let _ = OFFSET.compare_exchange(offset, more, Ordering::Relaxed, Ordering::Relaxed);
    }
    ticks()
}

/// Reads the counter or the system's clock.
#[inline(always)]
fn raw() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if counter_is_steady() {
        // SAFETY: reading the counter has no side effect. The processor may read it a few instructions early or late; the
        // stamps (`order`) compensate for that.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    monotonic_ns()
}

/// Returns the ticks and the nanoseconds since the Unix epoch, read together.
pub fn reading() -> (u64, u64) {
    let before = ticks();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let after = ticks();
    (before + after.saturating_sub(before) / 2, now)
}

/// Returns the nanoseconds per tick, measured since the first call; 1 until enough time has passed.
pub fn ns_per_tick() -> f64 {
    /// The minimum time to measure over: a reading has an error of about 50 ns.
    const MIN_ELAPSED_NS: u64 = 50_000;
    static FIRST: OnceLock<(u64, u64)> = OnceLock::new();
    let reading = || (ticks(), monotonic_ns());
    let (first, now) = (*FIRST.get_or_init(reading), reading());
    let (ticks, ns) = (now.0.saturating_sub(first.0), now.1.saturating_sub(first.1));
    if ns < MIN_ELAPSED_NS || ticks == 0 { 1.0 } else { ns as f64 / ticks as f64 }
}

/// Whether the counter has one constant rate in all power states and the kernel trusts it: 2 if so, 1 if not, 0 if that
/// has not been determined.
#[cfg(target_arch = "x86_64")]
static STEADY: AtomicU32 = AtomicU32::new(0);

/// Returns whether the counter has one constant rate in all power states and the kernel trusts it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter_is_steady() -> bool {
    match STEADY.load(Ordering::Relaxed) {
        0 => {
            let steady = detect_steady();
            STEADY.store(1 + u32::from(steady), Ordering::Relaxed);
            steady
        }
        known => known == 2,
    }
}

/// Returns a number that says whether the counter is steady, for [`set_counter_kind`] in another process of this machine.
pub(crate) fn counter_kind() -> u32 {
    #[cfg(target_arch = "x86_64")]
    return 1 + u32::from(counter_is_steady());
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Sets whether the counter is steady, so that this process need not open a file to find out.
pub(crate) fn set_counter_kind(kind: u32) {
    #[cfg(target_arch = "x86_64")]
    if matches!(kind, 1 | 2) {
        STEADY.store(kind, Ordering::Relaxed);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = kind;
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn detect_steady() -> bool {
    const INVARIANT_LEAF: u32 = 0x8000_0007;
    let invariant = std::arch::x86_64::__cpuid(0x8000_0000).eax >= INVARIANT_LEAF
        && std::arch::x86_64::__cpuid(INVARIANT_LEAF).edx & (1 << 8) != 0;
    // The kernel compares the counters of all cores and drops `tsc` when they drift apart.
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    invariant && std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

fn monotonic_ns() -> u64 {
    system_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time that the calling thread has used, in nanoseconds. This is a system call, which takes about
/// 200 ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    system_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time of a clock that needs no system call, in nanoseconds.
pub(crate) fn coarse_ns() -> u64 {
    system_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns the time of one of the system's clocks, in nanoseconds; 0 if the system does not provide it.
fn system_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-pointer is a local variable.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the reading taken by the first call in the process. It is the first of a recording's two readings.
pub(crate) fn first_reading() -> (u64, u64) {
    static FIRST: OnceLock<(u64, u64)> = OnceLock::new();
    *FIRST.get_or_init(reading)
}
