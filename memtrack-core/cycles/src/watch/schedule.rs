//! The schedule of scans. A thread scans its values at the end of its root scopes, and a thread of memtrack's own scans
//! shared values every few seconds while there is a watcher, but no thread spends more than a fiftieth of its time on
//! scans.

use super::watchers::{WATCHED, lock_watchers, notify, shortest_interval};
use crate::live::{Report, find, root_ended as handles_end};
use memtrack_recorder::recorder::{ForkCell, generation};
use memtrack_recorder::signals::SignalsBlocked;
use memtrack_recorder::{message, reentry};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The pause after a scan, as a multiple of the time that the scan took.
const PAUSE_FACTOR: u32 = 50;

thread_local! {
    /// The time before which the thread does not scan again. It has no destructor, so it can be read while the thread
    /// is ending.
    static NOT_BEFORE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Handles the end of a root scope on this thread.
pub(super) fn root_ended() {
    // Scans exclude handles whose scope has not ended, so the end is recorded even if the program has no watcher and
    // only runs scans itself.
    handles_end();
    if !WATCHED.load(Ordering::Relaxed) || lock_watchers().list.is_empty() {
        return;
    }
    let begin = Instant::now();
    if NOT_BEFORE.get().is_some_and(|not_before| begin < not_before) {
        return;
    }
    scan_now();
    NOT_BEFORE
        .set(begin.elapsed().checked_mul(PAUSE_FACTOR).and_then(|pause| Instant::now().checked_add(pause)));
}

/// Scans now, and returns the number of kinds of cycles that were new to at least one watcher.
pub(super) fn scan_now() -> usize {
    // Until the callbacks run, the report's memory counts as memtrack's own.
    let _inside = reentry::enter();
    match find() {
        Ok(mut report) => notify_if_any(&mut report),
        // Registration is off (as in a forked child), or another thread is scanning.
        Err(_) => 0,
    }
}

fn notify_if_any(report: &mut Report) -> usize {
    if report.graph.nodes.is_empty() { 0 } else { notify(report) }
}

/// Returns the pause after a scan that took `took`, for a thread that scans at intervals.
fn pause_after(took: Duration, interval: Duration) -> Duration {
    interval.max(took.saturating_mul(PAUSE_FACTOR))
}

/// Whether the thread is running in this process.
static RUNNING: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));
/// The interval at which the thread checks for watchers and for the scan interval that they request.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Starts the thread that scans shared values, unless it is already running or no watcher requests such scans.
pub(super) fn scan_shared_values() {
    let runs = RUNNING.get();
    if shortest_interval().is_none() || runs.swap(true, Ordering::AcqRel) {
        return;
    }
    let process = generation();
    let wanted = move || if process == generation() { shortest_interval() } else { None };
    let run = move || {
        loop {
            scan_while(wanted);
            runs.store(false, Ordering::Release);
            // A watch that started before the flag was cleared found this thread running and did not start another one,
            // so this thread must go on if there is a watch again.
            if wanted().is_none() || runs.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    };
    // Signals must be delivered to the program's threads, not to this one.
    let signals_blocked = SignalsBlocked::now();
    let spawned = thread::Builder::new().name("memtrack-cycles".to_owned()).spawn(run);
    drop(signals_blocked);
    if let Err(error) = spawned {
        runs.store(false, Ordering::Release);
        message::print(format_args!(
            "cannot start the thread that checks shared values ({error}): their cycles are only found when root scopes end"
        ));
    }
}

/// Scans at the requested interval until `wanted` returns `None`.
fn scan_while(wanted: impl Fn() -> Option<Duration>) {
    let (mut last, mut took) = (Instant::now(), Duration::ZERO);
    while let Some(interval) = wanted() {
        let pause = pause_after(took, interval);
        match pause.checked_sub(last.elapsed()) {
            Some(left) if !left.is_zero() => thread::park_timeout(left.min(CHECK_INTERVAL)),
            _ => {
                let begin = Instant::now();
                scan_now();
                last = Instant::now();
                took = last - begin;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_take_at_most_one_fiftieth_of_time() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(10));
        assert_eq!(pause_after(short, long), long);
        assert_eq!(pause_after(long, short), 50 * long);
        assert_eq!(pause_after(Duration::MAX, short), Duration::MAX);
    }
}
