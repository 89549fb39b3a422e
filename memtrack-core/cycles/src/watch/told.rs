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
