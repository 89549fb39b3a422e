//! The schedule of scans on a thread. The thread scans at the end of its root scopes, but never spends more than a
//! fiftieth of its time on scans.

use super::{WATCHED, notify};
use crate::live::{Report, find, root_ended as handles_end};
use memtrack_recorder::reentry;
use std::cell::Cell;
use std::sync::atomic::Ordering;
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
    if !WATCHED.load(Ordering::Relaxed) || super::lock_watchers().list.is_empty() {
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
pub(super) fn pause_after(took: Duration, interval: Duration) -> Duration {
    interval.max(took.saturating_mul(PAUSE_FACTOR))
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
