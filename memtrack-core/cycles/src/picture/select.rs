//! Which values are drawn and listed, where a graph has more than people can look at.

use crate::findings::{Cycle, Findings};
use crate::graph::Graph;
use crate::referrers::Referrers;
use foldhash::{HashMap, HashMapExt};
use std::collections::VecDeque;

/// Most values in a picture. The library takes a third of a second for this many; and what has more boxes is read as a table
/// or by a program.
pub(crate) const MOST_NODES: usize = 300;
/// Most cycles that are described. Those of the same types and fields count as one.
pub(crate) const MOST_CYCLES: usize = 100;
/// Most values of a cycle, and of its way to device memory, before other cycles have their turn.
const TURN: usize = 48;

/// The values of a picture, the worst cycle's first.
pub(crate) struct Drawn {
    /// As places in the graph's nodes.
    pub nodes: Vec<u32>,
    /// The place of each in `nodes`.
    pub places: HashMap<u32, u32>,
    /// How many values of the graph are not among them.
    pub left_out: u64,
}

impl Drawn {
    /// The worst cycles with their ways to device memory; then the rest of their values; then what refers to these and what
    /// they refer to; then everything else.
    pub fn of(graph: &Graph, findings: &Findings) -> Self {
        let mut drawn = Self { nodes: Vec::new(), places: HashMap::new(), left_out: 0 };
        let cycles = &findings.cycles[..findings.cycles.len().min(MOST_CYCLES)];
        for cycle in cycles {
            way(graph, cycle, &cycle.around).take(TURN).for_each(|node| drawn.add(node));
            // Both ends of a long way say more than its middle.
            let steps = cycle.to_memory.len();
            let (head, tail) = (steps.min(TURN / 2), steps.saturating_sub(TURN / 2).max(TURN / 2).min(steps));
            way(graph, cycle, &cycle.to_memory[..head]).for_each(|node| drawn.add(node));
            way(graph, cycle, &cycle.to_memory[tail..]).skip(1).for_each(|node| drawn.add(node));
            cycle.memory_node.into_iter().for_each(|node| drawn.add(node));
            if drawn.is_full() {
                break;
            }
        }
        for handles in graph.unexplained.iter().take(MOST_CYCLES) {
            drawn.add(handles.node);
        }
        for cycle in cycles {
            cycle.nodes.iter().take(MOST_NODES).for_each(|&node| drawn.add(node));
        }
        drawn.add_neighbours(graph);
        let with_memory = (0..graph.nodes.len() as u32).filter(|&node| graph.nodes[node as usize].root);
        for node in with_memory.chain(0..graph.nodes.len() as u32) {
            if drawn.is_full() {
                break;
            }
            drawn.add(node);
        }
        drawn.left_out = (graph.nodes.len() - drawn.nodes.len()) as u64;
        drawn
    }

    /// Whether a value is drawn.
    pub fn has(&self, node: u32) -> bool {
        self.places.contains_key(&node)
    }

    fn is_full(&self) -> bool {
        self.nodes.len() >= MOST_NODES
    }

    fn add(&mut self, node: u32) {
        if !self.is_full() && !self.places.contains_key(&node) {
            self.places.insert(node, self.nodes.len() as u32);
            self.nodes.push(node);
        }
    }

    /// Breadth first, along references and against them.
    fn add_neighbours(&mut self, graph: &Graph) {
        if self.is_full() || self.nodes.is_empty() {
            return;
        }
        let referrers = Referrers::of(graph);
        let mut left: VecDeque<u32> = self.nodes.iter().copied().collect();
        while let Some(node) = left.pop_front() {
            let to = graph.edges_of(node).map(|edge| graph.edges[edge].to);
            let from = referrers.of_node(node).iter().map(|&edge| graph.edges[edge as usize].from);
            for other in to.chain(from) {
                if self.is_full() {
                    return;
                }
                if !self.has(other) {
                    self.add(other);
                    left.push_back(other);
                }
            }
        }
    }
}

/// The values along a way, with the one that it begins at.
fn way<'a>(graph: &'a Graph, cycle: &'a Cycle, edges: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let first = edges.first().map(|&edge| graph.edges[edge as usize].from);
    let first = first.or_else(|| cycle.nodes.first().copied().filter(|_| cycle.around.is_empty()));
    first.into_iter().chain(edges.iter().map(|&edge| graph.edges[edge as usize].to))
}
