//! Selects the values to draw and to list if a graph has too many, and the lines between them. All references from one
//! value to another are drawn as one line.

use crate::findings::{Cycle, Findings};
use crate::graph::{Graph, Referrers};
use foldhash::{HashMap, HashMapExt, HashSet};
use std::collections::VecDeque;

/// The maximum number of values in a picture. The layout library takes a third of a second for this many; a larger
/// graph is better read as a table or by a program.
pub(crate) const MAX_NODES: usize = 300;
/// The maximum number of cycles that are described. Cycles with the same types and fields count as one.
pub(crate) const MAX_CYCLES: usize = 100;
/// The maximum number of values from a cycle, and from its path to device memory, that are added before the values of
/// the next cycle.
const MAX_VALUES_PER_CYCLE: usize = 48;

/// The values in a picture, starting with those of the worst cycle.
pub(crate) struct DrawnValues {
    /// Indices into the graph's nodes.
    pub nodes: Vec<u32>,
    /// The index in `nodes` of each drawn value.
    pub places: HashMap<u32, u32>,
    /// The number of values in the graph that are not drawn.
    pub left_out: u64,
}

impl DrawnValues {
    /// Selects values in this order: the worst cycles with their paths to device memory, values with unexplained
    /// handles, the other values of these cycles, the values connected to any of these, and then everything else.
    pub fn of(graph: &Graph, findings: &Findings) -> Self {
        let mut drawn = Self { nodes: Vec::new(), places: HashMap::new(), left_out: 0 };
        let cycles = &findings.cycles[..findings.cycles.len().min(MAX_CYCLES)];
        for cycle in cycles {
            values_on_path(graph, cycle, &cycle.closed_path)
                .take(MAX_VALUES_PER_CYCLE)
                .for_each(|node| drawn.add(node));
            // The two ends of a long path are more informative than its middle.
            let steps = cycle.to_memory.len();
            let (head, tail) = (
                steps.min(MAX_VALUES_PER_CYCLE / 2),
                steps.saturating_sub(MAX_VALUES_PER_CYCLE / 2).max(MAX_VALUES_PER_CYCLE / 2).min(steps),
            );
            values_on_path(graph, cycle, &cycle.to_memory[..head]).for_each(|node| drawn.add(node));
            values_on_path(graph, cycle, &cycle.to_memory[tail..]).skip(1).for_each(|node| drawn.add(node));
            cycle.memory_node.into_iter().for_each(|node| drawn.add(node));
            if drawn.is_full() {
                break;
            }
        }
        for handles in graph.unexplained.iter().take(MAX_CYCLES) {
            drawn.add(handles.node);
        }
        for cycle in cycles {
            cycle.nodes.iter().take(MAX_NODES).for_each(|&node| drawn.add(node));
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

    /// Returns whether a value is drawn.
    pub fn has(&self, node: u32) -> bool {
        self.places.contains_key(&node)
    }

    fn is_full(&self) -> bool {
        self.nodes.len() >= MAX_NODES
    }

    fn add(&mut self, node: u32) {
        if !self.is_full() && !self.places.contains_key(&node) {
            self.places.insert(node, self.nodes.len() as u32);
            self.nodes.push(node);
        }
    }

    /// Adds values breadth-first, following references in both directions.
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

/// Returns the values along a path, including the first.
fn values_on_path<'a>(
    graph: &'a Graph,
    cycle: &'a Cycle,
    edges: &'a [u32],
) -> impl Iterator<Item = u32> + 'a {
    let first = edges.first().map(|&edge| graph.edges[edge as usize].from);
    let first = first.or_else(|| cycle.nodes.first().copied().filter(|_| cycle.closed_path.is_empty()));
    first.into_iter().chain(edges.iter().map(|&edge| graph.edges[edge as usize].to))
}

/// The maximum number of lines in a picture. Further lines are only counted. Lines that belong to cycles are the last
/// to be left out.
pub(crate) const MAX_LINES: usize = 900;

/// References from one drawn value to another, or to itself.
#[derive(Clone, Debug)]
pub(crate) struct DrawnEdge {
    /// The two values, as indices into the graph's nodes.
    pub from: u32,
    pub to: u32,
    /// The references, as indices into the graph's edges. There is at least one.
    pub edges: Vec<u32>,
    /// The cycle that the line belongs to, as an index into the findings.
    pub cycle: Option<u32>,
    /// Whether memtrack suggests to make one of this line's references weak.
    pub cut: bool,
    /// Whether the text names the line: as a part of a cycle, or of the path from a cycle to device memory.
    pub shown: bool,
}

/// Returns the lines between drawn values, with the lines of the worst cycles first, and the number of references that
/// no line represents.
pub(crate) fn select_lines(graph: &Graph, findings: &Findings, drawn: &DrawnValues) -> (Vec<DrawnEdge>, u64) {
    let cycle_of = cycles_by_value(findings, drawn);
    let cuts = suggested_edges(graph, findings);
    let shown: HashSet<u32> = findings
        .cycles
        .iter()
        .flat_map(|cycle| cycle.closed_path.iter().chain(&cycle.to_memory).copied())
        .take(1 << 16)
        .collect();
    let mut lines = Vec::<DrawnEdge>::new();
    let mut places = HashMap::<(u32, u32), usize>::new();
    let mut left_out = 0;
    for &from in &drawn.nodes {
        for edge in graph.edges_of(from) {
            let (to, number) = (graph.edges[edge].to, edge as u32);
            if !drawn.has(to) {
                continue;
            }
            let place = *places.entry((from, to)).or_insert_with(|| {
                let cycle = cycle_of.get(&from).filter(|cycle| cycle_of.get(&to) == Some(cycle));
                let (cycle, edges) = (cycle.copied(), Vec::new());
                lines.push(DrawnEdge { from, to, edges, cycle, cut: false, shown: false });
                lines.len() - 1
            });
            let line = &mut lines[place];
            line.edges.push(number);
            line.cut |= cuts.contains(&number);
            line.shown |= shown.contains(&number);
        }
    }
    lines.sort_by_key(|line| (!line.cut, !line.shown, line.cycle.is_none()));
    for line in lines.drain(lines.len().min(MAX_LINES)..) {
        left_out += line.edges.len() as u64;
    }
    (lines, left_out)
}

/// Returns the references that the suggestions for the cycles make weak.
pub(crate) fn suggested_edges(graph: &Graph, findings: &Findings) -> HashSet<u32> {
    let cycles = findings.cycles.iter().take(MAX_CYCLES);
    cycles.flat_map(|cycle| cycle.edges_to_make_weak(graph)).collect()
}

/// Returns the cycle of each drawn value that is part of a cycle.
pub(crate) fn cycles_by_value(findings: &Findings, drawn: &DrawnValues) -> HashMap<u32, u32> {
    let mut cycle_of = HashMap::new();
    for (cycle, number) in findings.cycles.iter().take(MAX_CYCLES).zip(0..) {
        for &node in cycle.nodes.iter().filter(|&&node| drawn.has(node)) {
            cycle_of.entry(node).or_insert(number);
        }
    }
    cycle_of
}
