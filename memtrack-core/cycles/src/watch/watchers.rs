//! The watchers, and the kinds of cycles that each has been notified of. Each kind is reported once, and again when there
//! are ten times as many cycles of this kind.

use super::allocated::name_allocations;
use crate::findings::{Findings, Proof};
use crate::graph::Graph;
use crate::live::Report;
use foldhash::{HashMap, HashSet, HashSetExt};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::{message, reentry};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The result of a scan, as passed to the callback of [`observe_cycles`](crate::observe_cycles).
#[derive(Debug)]
#[non_exhaustive]
pub struct Observation<'a> {
    /// The report of the scan. Its graph contains the places where device memory was allocated, if they were recorded.
    pub report: &'a Report,
    /// The findings in the report's graph.
    pub findings: &'a Findings,
    /// The indices in [`Findings::cycles`] of the cycles that are new to this observer. A cycle is new if no cycle with
    /// the same types and fields was found before, or if there are ten times as many now.
    pub new: &'a [usize],
}

pub(super) type Observe = dyn Fn(&Observation<'_>) + Send + Sync;

/// An observer of cycles.
pub(super) struct Watcher {
    pub(super) number: u64,
    /// The interval at which it requests scans of shared values, or `None` if it requests none.
    pub(super) interval: Option<Duration>,
    pub(super) observe: Box<Observe>,
    pub(super) reported: Mutex<ReportedKinds>,
}

/// Whether there might be a watcher. The flag is checked when a root scope ends, and it remains set in a forked child,
/// which has no watchers.
pub(super) static WATCHED: AtomicBool = AtomicBool::new(false);

static WATCHERS: ForkCell<Mutex<Watchers>> = ForkCell::new(Mutex::default);

#[derive(Default)]
pub(super) struct Watchers {
    pub(super) next: u64,
    pub(super) list: Vec<Arc<Watcher>>,
    /// Whether registration was off before the first watch.
    pub(super) was_off: bool,
}

pub(super) fn lock_watchers() -> MutexGuard<'static, Watchers> {
    WATCHERS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the shortest interval at which any watcher requests scans of shared values.
pub(super) fn shortest_interval() -> Option<Duration> {
    lock_watchers().list.iter().filter_map(|watcher| watcher.interval).min()
}

/// Notifies each watcher of the cycles that are new to it. No lock is held during the callbacks.
pub(super) fn notify(report: &mut Report) -> usize {
    let all = lock_watchers().list.clone();
    let inside = reentry::enter();
    let findings = Findings::of(&report.graph);
    let mut named = false;
    let mut new_cycles = HashSet::new();
    for watcher in &all {
        let new = watcher
            .reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .select_new(&report.graph, &findings);
        if new.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut named, true) {
            name_allocations(&mut report.graph);
        }
        new_cycles.extend(new.iter().copied());
        let observed = Observation { report, findings: &findings, new: &new };
        // The callback is the program's code.
        let called = reentry::outside(|| catch_unwind(AssertUnwindSafe(|| (watcher.observe)(&observed))));
        if let Err(panic) = called {
            message::print("a callback of observe_cycles panicked");
            std::mem::forget(panic);
        }
    }
    drop(inside);
    new_cycles.len()
}

/// The maximum number of kinds that are remembered. Further kinds are not reported, because a user who has not fixed a
/// thousand kinds will not fix one more.
const MAX_KINDS: usize = 1000;

/// The number of cycles of each kind when it was last reported.
#[derive(Debug, Default)]
pub(super) struct ReportedKinds(HashMap<u64, u64>);

impl ReportedKinds {
    /// Returns the indices of the cycles to report now, and remembers them.
    fn select_new(&mut self, graph: &Graph, findings: &Findings) -> Vec<usize> {
        let mut new = Vec::new();
        for (place, cycle) in findings.cycles.iter().enumerate() {
            if cycle.proof == Proof::HeldOutside {
                continue;
            }
            let kind = findings.kind_of(graph, cycle);
            let has_room = self.0.len() < MAX_KINDS;
            match self.0.get_mut(&kind) {
                Some(last) if cycle.instances < last.saturating_mul(10) => {}
                Some(last) => {
                    *last = cycle.instances;
                    new.push(place);
                }
                None if has_room => {
                    self.0.insert(kind, cycle.instances);
                    new.push(place);
                }
                None => {}
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Origin;
    use crate::testing::parse_graph;

    /// Returns the notation for `count` cycles of one value each, with this name.
    fn cycle_lines(name: &str, count: usize) -> String {
        (0..count).map(|at| format!("{name}#{at} .own {name}#{at}\n{name}#{at} = 10\n")).collect()
    }

    fn count_reported(reported: &mut ReportedKinds, lines: &str) -> usize {
        let graph = parse_graph(Origin::Rust, lines);
        reported.select_new(&graph, &Findings::of(&graph)).len()
    }

    #[test]
    fn kind_is_reported_again_at_tenfold_count() {
        let mut before = ReportedKinds::default();
        let mut counts = [1, 1, 2, 9, 10, 10, 99, 100].into_iter();
        let counted: Vec<usize> =
            counts.by_ref().map(|count| count_reported(&mut before, &cycle_lines("A", count))).collect();
        assert_eq!(counted, [1, 0, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn new_kind_is_reported_whatever_was_reported_before() {
        let mut before = ReportedKinds::default();
        assert_eq!(count_reported(&mut before, &cycle_lines("A", 3)), 1);
        assert_eq!(count_reported(&mut before, &(cycle_lines("A", 3) + &cycle_lines("B", 1))), 1);
        // The type is the same, but the field differs.
        assert_eq!(count_reported(&mut before, "A .other A\nA = 10"), 1);
    }

    #[test]
    fn cycles_that_program_still_holds_are_not_reported() {
        let mut before = ReportedKinds::default();
        assert_eq!(count_reported(&mut before, &(cycle_lines("A", 1) + "A#0 held 1")), 0);
        assert_eq!(count_reported(&mut before, &cycle_lines("A", 1)), 1, "it leaks now");
    }

    #[test]
    fn number_of_remembered_kinds_is_limited() {
        let mut before = ReportedKinds::default();
        let kinds: String = (0..MAX_KINDS + 5).map(|at| cycle_lines(&format!("A{at}"), 1)).collect();
        assert_eq!(count_reported(&mut before, &kinds), MAX_KINDS);
        assert_eq!(count_reported(&mut before, &kinds), 0);
    }
}
