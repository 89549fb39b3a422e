//! Writes the graph and its findings as JSON, which [`read`](crate::read) reads back. The repository's docs/CYCLES.md
//! describes the format.

use crate::findings::{Bytes, Cut, Cycle, Findings, HandleGroup, Proof};
use crate::format::{EdgeForm, NodeForm, VERSION};
use crate::graph::{Edge, Graph, Origin, UnexplainedHandles};
use serde::Serialize;
use serde::ser::Serializer;
use std::io::{self, Write};

/// Writes the graph and its findings.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write(graph: &Graph, findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct File<N, E> {
        memtrack_cycles: u64,
        #[serde(flatten)]
        findings: CyclesAnswer,
        nodes: N,
        edges: E,
    }
    let file = File {
        memtrack_cycles: VERSION,
        findings: self::findings(graph, findings),
        nodes: Each(|| (0..graph.nodes.len() as u32).map(|node| NodeForm::of(graph, node))),
        edges: Each(|| graph.edges.iter().map(|edge| EdgeForm::of(graph, edge))),
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

/// Writes the nodes in the format of PyTorch's `create_graph`.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write_nodes(graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    let nodes = Each(|| {
        (0..graph.nodes.len() as u32).map(|number| {
            let node = &graph.nodes[number as usize];
            let references = graph.edges_of(number);
            PytorchNodeJson {
                label: graph.text(node.label),
                context: node.allocated.map(|text| graph.text(text)),
                root: node.root,
                references: Each(move || {
                    graph.edges[references.clone()].iter().map(|edge| (graph.text(edge.path), edge.to))
                }),
            }
        })
    });
    serde_json::to_writer_pretty(&mut *out, &nodes)?;
    out.write_all(b"\n")
}

/// Returns only the findings, as `memtrack cycles --json` prints them.
pub fn findings(graph: &Graph, findings: &Findings) -> CyclesAnswer {
    CyclesAnswer {
        origin: graph.origin,
        remarks: graph.remarks.clone(),
        counts: count_totals(graph, findings),
        findings: findings.cycles.iter().map(|cycle| cycle_to_answer(graph, cycle)).collect(),
        unexplained_sites: findings.unexplained.clone(),
        unexplained: graph
            .unexplained
            .iter()
            .map(|handles| UnexplainedAnswer {
                node: handles.node,
                label: graph.label(handles.node).into(),
                handles: handles.clone(),
            })
            .collect(),
    }
}

/// The cycles and handles that keep device memory alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CyclesAnswer {
    /// The origin of the graph: `python` or `rust`.
    pub origin: Origin,
    /// Remarks about how the graph was obtained, as sentences.
    pub remarks: Vec<String>,
    /// Totals for the graph and the findings.
    pub counts: CountsAnswer,
    /// Cycles from which device memory can be reached, proved ones first.
    pub findings: Vec<CycleAnswer>,
    /// Unexplained handles, grouped by the place where they were created.
    pub unexplained_sites: Vec<HandleGroup>,
    /// The unexplained handles again, with one entry for each value and place.
    pub unexplained: Vec<UnexplainedAnswer>,
}

/// Totals for the graph and the findings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CountsAnswer {
    /// The number of values in the graph.
    pub nodes: usize,
    /// The number of references in the graph.
    pub edges: usize,
    /// The number of values whose contents could be visited only in part.
    pub incomplete: usize,
    /// The number of values that hold device memory directly.
    pub device_buffers: usize,
    /// The number of cycles.
    pub cycles: u64,
    /// The number of cycles that lead to no device memory. They are not listed in the findings.
    pub cycles_without_device_memory: u64,
    /// The number of cycles that were not examined because there are too many.
    pub cycles_not_measured: u64,
    /// All unreachable device memory to which a cycle leads.
    pub leaked: Bytes,
    /// Unreachable device memory to which no cycle leads.
    pub unreachable_beside_cycles: Bytes,
}

// A `Cycle` has the numbers of values and references in its graph. Here each reference has the labels of its values, and long
// paths are cut, so that the findings can be read without the graph.
/// A cycle, which is a set of values that all lead to each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CycleAnswer {
    /// The certainty that the program can no longer reach the cycle: `unreachable` (proved),
    /// `unreachable_but_weak_handles` (only weak handles are left) or `held_from_outside` (not yet a leak).
    pub kind: Proof,
    /// The number of cycles with the same types and fields. This entry describes the first of them.
    pub instances: u64,
    /// The device memory that the cycle leads to and that cannot be used from outside.
    pub leaked: Bytes,
    /// The part of the leaked memory that would be freed if only this cycle were gone.
    pub exclusive: Bytes,
    /// The device memory that the cycle leads to and that is also held from outside.
    pub pinned: Bytes,
    /// The device memory that all instances of the cycle leak together.
    pub leaked_by_all_instances: Bytes,
    /// The number of strong references into the cycle from outside.
    pub held_from_outside_by: u64,
    /// The number of weak references from outside to values in the cycle.
    pub weak_handles: u64,
    /// Other cycles that lead to this one, as indices into the list of findings. They must be broken too.
    pub behind: Vec<u32>,
    /// A shortest closed path in the cycle.
    pub cycle: WayAnswer,
    /// The shortest path from the cycle to device memory.
    pub way_to_memory: WayAnswer,
    /// The number of the value that holds device memory at the end of `way_to_memory`.
    pub memory_node: Option<u32>,
    /// The references to make weak to break the cycle. If the first one breaks the cycle alone, any one of them is
    /// enough; otherwise all of them are needed.
    pub make_weak: Vec<CutAnswer>,
    /// Whether making the references in `make_weak` weak breaks all cycles among the values in `nodes`.
    pub make_weak_is_enough: bool,
    /// The numbers of the values in the cycle.
    pub nodes: Vec<u32>,
}

/// A path along references. Only the start and the end of a long path are included.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WayAnswer {
    /// The number of steps in the whole path.
    pub steps: usize,
    /// The first steps of the path; all steps if none are left out.
    pub first: Vec<StepAnswer>,
    /// The last steps of the path; empty unless steps in the middle are left out.
    pub last: Vec<StepAnswer>,
}

/// A reference from one value to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StepAnswer {
    /// The number of the value that contains the reference.
    pub from: u32,
    /// The label of the value that contains the reference.
    pub from_label: String,
    /// The path from the value to the reference that it contains, such as `.hooks[0]`.
    pub path: String,
    /// The number of the value that the reference refers to.
    pub to: u32,
    /// The label of the value that the reference refers to.
    pub to_label: String,
}

/// A reference to make weak to break a cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CutAnswer {
    /// The reference.
    #[serde(flatten)]
    pub step: StepAnswer,
    /// What is known about the reference.
    #[serde(flatten)]
    pub cut: Cut,
}

/// Handles to one value, created at one place, that no known reference accounts for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnexplainedAnswer {
    /// The number of the value that the handles keep alive.
    pub node: u32,
    /// The label of the value that the handles keep alive.
    pub label: String,
    /// The handles.
    #[serde(flatten)]
    pub handles: UnexplainedHandles,
}

fn count_totals(graph: &Graph, findings: &Findings) -> CountsAnswer {
    CountsAnswer {
        nodes: graph.nodes.len(),
        edges: graph.edges.len(),
        incomplete: graph.nodes.iter().filter(|node| node.incomplete.is_some()).count(),
        device_buffers: graph.nodes.iter().filter(|node| node.root).count(),
        cycles: findings.cycles.iter().map(|cycle| cycle.instances).sum::<u64>(),
        cycles_without_device_memory: findings.without_memory,
        cycles_not_measured: findings.not_measured,
        leaked: findings.leaked,
        unreachable_beside_cycles: findings.unreachable_beside_cycles,
    }
}

/// Converts a cycle to its JSON form.
fn cycle_to_answer(graph: &Graph, cycle: &Cycle) -> CycleAnswer {
    let path = |edges: &[u32], steps: usize| {
        /// The maximum number of steps written at each end of a path.
        const MAX_STEPS: usize = 32;
        let end =
            |edges: &[u32]| -> Vec<_> { edges.iter().map(|&edge| step_to_answer(graph, edge)).collect() };
        match edges.len() {
            count if count > 2 * MAX_STEPS || count < steps => {
                let (first, last) = (&edges[..MAX_STEPS], &edges[count - MAX_STEPS..]);
                WayAnswer { steps, first: end(first), last: end(last) }
            }
            _ => WayAnswer { steps, first: end(edges), last: Vec::new() },
        }
    };
    let weak = cycle.cuts.iter().map(|&cut| CutAnswer { step: step_to_answer(graph, cut.edge), cut });
    CycleAnswer {
        kind: cycle.proof,
        instances: cycle.instances,
        leaked: cycle.leaked,
        exclusive: cycle.exclusive,
        pinned: cycle.pinned,
        leaked_by_all_instances: cycle.all_leaked,
        held_from_outside_by: cycle.outside_pointers,
        weak_handles: cycle.weak_outside,
        behind: cycle.held_by_cycles.clone(),
        cycle: path(&cycle.closed_path, cycle.closed_path.len()),
        way_to_memory: path(&cycle.to_memory, cycle.to_memory_steps),
        memory_node: cycle.memory_node,
        make_weak: weak.collect(),
        make_weak_is_enough: cycle.cuts_are_enough,
        nodes: cycle.nodes.clone(),
    }
}

fn step_to_answer(graph: &Graph, edge: u32) -> StepAnswer {
    let Edge { from, to, path } = graph.edges[edge as usize];
    StepAnswer {
        from,
        from_label: graph.label(from).into(),
        path: graph.text(path).into(),
        to,
        to_label: graph.label(to).into(),
    }
}

/// A list that is produced while it is serialized.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

#[derive(Serialize)]
struct PytorchNodeJson<'a, R> {
    label: &'a str,
    context: Option<&'a str>,
    root: bool,
    references: R,
}
