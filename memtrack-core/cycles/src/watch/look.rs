//! When a thread looks: at the end of its root scopes, but never for more than a fiftieth of its time.

use super::{WATCHED, tell};
use crate::live::{Report, find, root_ended as handles_end};
use memtrack_recorder::reentry;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many times as long as a scan took passes before the next.
const PAUSE: u32 = 50;

thread_local! {
    /// Not before this the thread looks again. No destructor: readable while the thread ends.
    static NOT_BEFORE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A root scope of this thread has ended.
pub(super) fn root_ended() {
    // Handles are told from those of a scope that has not ended also where a program scans by itself.
    handles_end();
    if !WATCHED.load(Ordering::Relaxed) || super::watchers().all.is_empty() {
        return;
    }
    let begin = Instant::now();
    if NOT_BEFORE.get().is_some_and(|not_before| begin < not_before) {
        return;
    }
    now();
    NOT_BEFORE.set(begin.elapsed().checked_mul(PAUSE).and_then(|pause| Instant::now().checked_add(pause)));
}

/// Looks now. Returns how many kinds of cycles were new to somebody.
pub(super) fn now() -> usize {
    // The report is memtrack's own, from here to the callbacks.
    let _inside = reentry::enter();
    match find() {
        Ok(mut report) => tell_of(&mut report),
        // Off in the child of a fork, or another thread looks.
        Err(_) => 0,
    }
}

fn tell_of(report: &mut Report) -> usize {
    if report.graph.nodes.is_empty() { 0 } else { tell(report) }
}

/// How long whoever looks at an interval waits after a scan that took so long.
pub(super) fn pause_after(took: Duration, every: Duration) -> Duration {
    every.max(took.saturating_mul(PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_takes_a_fiftieth_of_the_time_at_most() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(10));
        assert_eq!(pause_after(short, long), long);
        assert_eq!(pause_after(long, short), 50 * long);
        assert_eq!(pause_after(Duration::MAX, short), Duration::MAX);
    }
}
