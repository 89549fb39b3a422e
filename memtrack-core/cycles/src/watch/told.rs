//! What a watcher was told of already: each kind of cycle once, and again when there are ten times as many.

use crate::findings::{Findings, Proof};
use crate::graph::Graph;
use foldhash::HashMap;

/// Most kinds that are remembered. Of those beyond nothing is told: who did not mend a thousand will not mend one more.
const MOST: usize = 1000;

/// By kind: how many there were when it was told last.
#[derive(Debug, Default)]
pub(super) struct Told(HashMap<u64, u64>);

impl Told {
    /// The places of the cycles that are to be told now.
    pub(super) fn new_among(&mut self, graph: &Graph, findings: &Findings) -> Vec<usize> {
        let mut new = Vec::new();
        for (place, cycle) in findings.cycles.iter().enumerate() {
            if cycle.proof == Proof::HeldOutside {
                continue;
            }
            let kind = findings.kind_of(graph, cycle);
            let has_room = self.0.len() < MOST;
            match self.0.get_mut(&kind) {
                Some(told) if cycle.instances < told.saturating_mul(10) => {}
                Some(told) => {
                    *told = cycle.instances;
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
    use crate::testing::graph;

    /// So many cycles of one value, which has the name.
    fn cycles(name: &str, count: usize) -> String {
        (0..count).map(|at| format!("{name}#{at} .own {name}#{at}\n{name}#{at} = 10\n")).collect()
    }

    fn told(told: &mut Told, lines: &str) -> usize {
        let graph = graph(Origin::Rust, lines);
        told.new_among(&graph, &Findings::of(&graph)).len()
    }

    #[test]
    fn a_kind_is_told_once_and_again_when_there_are_ten_times_as_many() {
        let mut before = Told::default();
        let mut counts = [1, 1, 2, 9, 10, 10, 99, 100].into_iter();
        let told: Vec<usize> = counts.by_ref().map(|count| told(&mut before, &cycles("A", count))).collect();
        assert_eq!(told, [1, 0, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn another_kind_is_told_whatever_was_told_before() {
        let mut before = Told::default();
        assert_eq!(told(&mut before, &cycles("A", 3)), 1);
        assert_eq!(told(&mut before, &(cycles("A", 3) + &cycles("B", 1))), 1);
        // The same type, by another field.
        assert_eq!(told(&mut before, "A .other A\nA = 10"), 1);
    }

    #[test]
    fn what_the_program_still_holds_is_not_told() {
        let mut before = Told::default();
        assert_eq!(told(&mut before, &(cycles("A", 1) + "A#0 held 1")), 0);
        assert_eq!(told(&mut before, &cycles("A", 1)), 1, "it leaks now");
    }

    #[test]
    fn so_many_kinds_are_remembered_and_no_more() {
        let mut before = Told::default();
        let kinds: String = (0..MOST + 5).map(|at| cycles(&format!("A{at}"), 1)).collect();
        assert_eq!(told(&mut before, &kinds), MOST);
        assert_eq!(told(&mut before, &kinds), 0);
    }
}
