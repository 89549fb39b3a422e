//! The lines in a picture. All references from one value to another are drawn as one line.

use super::select::DrawnValues;
use crate::findings::Findings;
use crate::graph::Graph;
use foldhash::{HashMap, HashMapExt, HashSet};

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
    let cycles = findings.cycles.iter().take(super::MAX_CYCLES);
    cycles.flat_map(|cycle| cycle.edges_to_make_weak(graph)).collect()
}

/// Returns the cycle of each drawn value that is part of a cycle.
pub(crate) fn cycles_by_value(findings: &Findings, drawn: &DrawnValues) -> HashMap<u32, u32> {
    let mut cycle_of = HashMap::new();
    for (cycle, number) in findings.cycles.iter().take(super::MAX_CYCLES).zip(0..) {
        for &node in cycle.nodes.iter().filter(|&&node| drawn.has(node)) {
            cycle_of.entry(node).or_insert(number);
        }
    }
    cycle_of
}
