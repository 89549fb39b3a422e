//! The kinds of cycles that a watcher has been notified of. Each kind is reported once, and again when there are ten
//! times as many cycles of this kind.

use crate::findings::{Findings, Proof};
use crate::graph::Graph;
use foldhash::HashMap;

/// The maximum number of kinds that are remembered. Further kinds are not reported, because a user who has not fixed a
/// thousand kinds will not fix one more.
const MAX_KINDS: usize = 1000;

/// The number of cycles of each kind when it was last reported.
#[derive(Debug, Default)]
pub(super) struct ReportedKinds(HashMap<u64, u64>);

impl ReportedKinds {
    /// Returns the indices of the cycles to report now, and remembers them.
    pub(super) fn select_new(&mut self, graph: &Graph, findings: &Findings) -> Vec<usize> {
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
