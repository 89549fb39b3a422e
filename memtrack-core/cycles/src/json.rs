//! Writes the graph and its findings as JSON, which [`read`](crate::read) reads back. The repository's docs/CYCLES.md
//! describes the format.

use crate::findings::{Bytes, Cycle, Findings, Proof};
use crate::graph::{Edge, Graph, Memory, Origin, Reachability};
use crate::read::VERSION;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use std::io::{self, Write};

/// Writes the graph and its findings.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write(graph: &Graph, findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    let mut json = serde_json::Serializer::new(&mut *out);
    let mut map = json.serialize_map(None)?;
    map.serialize_entry("memtrack_cycles", &VERSION)?;
    map.serialize_entry("origin", origin_name(graph))?;
    map.serialize_entry("remarks", &graph.remarks)?;
    map.serialize_entry("counts", &count_totals(graph, findings))?;
    map.serialize_entry("findings", &cycles_to_answer(graph, findings))?;
    map.serialize_entry("unexplained_sites", &sites_to_answer(graph, findings))?;
    map.serialize_entry("unexplained", &unexplained_to_answer(graph))?;
    map.serialize_entry("nodes", &Each(|| (0..graph.nodes.len() as u32).map(|node| Node { graph, node })))?;
    map.serialize_entry("edges", &Each(|| graph.edges.iter().map(|edge| EdgeJson { graph, edge })))?;
    SerializeMap::end(map)?;
    out.write_all(b"\n")
}

/// Writes the nodes in the format of PyTorch's `create_graph`.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write_nodes(graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    let nodes = Each(|| (0..graph.nodes.len() as u32).map(|node| PytorchNodeJson { graph, node }));
    serde_json::to_writer_pretty(&mut *out, &nodes)?;
    out.write_all(b"\n")
}

/// Returns only the findings, as `memtrack cycles --json` prints them.
pub fn findings(graph: &Graph, findings: &Findings) -> CyclesAnswer {
    CyclesAnswer {
        origin: origin_name(graph),
        remarks: graph.remarks.clone(),
        counts: count_totals(graph, findings),
        findings: cycles_to_answer(graph, findings),
        unexplained_sites: sites_to_answer(graph, findings),
        unexplained: unexplained_to_answer(graph),
    }
}

/// The cycles and handles that keep device memory alive.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CyclesAnswer {
    /// The origin of the graph: `python` or `rust`.
    pub origin: &'static str,
    /// Remarks about how the graph was obtained, as sentences.
    pub remarks: Vec<String>,
    /// Totals for the graph and the findings.
    pub counts: CountsAnswer,
    /// Cycles from which device memory can be reached, proved ones first.
    pub findings: Vec<CycleAnswer>,
    /// Unexplained handles, grouped by the place where they were created.
    pub unexplained_sites: Vec<SiteAnswer>,
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
    pub leaked: MemoryAnswer,
    /// Unreachable device memory to which no cycle leads.
    pub unreachable_beside_cycles: MemoryAnswer,
}

/// Device memory, with each storage counted once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MemoryAnswer {
    /// The total size in bytes; null if the size of any storage is unknown.
    pub size_bytes: Option<u64>,
    /// The number of storages.
    pub storages: u64,
    /// The number of storages whose size is unknown.
    pub storages_of_unknown_size: u64,
}

/// A cycle, which is a set of values that all lead to each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CycleAnswer {
    /// The certainty that the program can no longer reach the cycle: `unreachable` (proved),
    /// `unreachable_but_weak_handles` (only weak handles are left) or `held_from_outside` (not yet a leak).
    pub kind: &'static str,
    /// The number of cycles with the same types and fields. This entry describes the first of them.
    pub instances: u64,
    /// The device memory that the cycle leads to and that cannot be used from outside.
    pub leaked: MemoryAnswer,
    /// The part of the leaked memory that would be freed if only this cycle were gone.
    pub exclusive: MemoryAnswer,
    /// The device memory that the cycle leads to and that is also held from outside.
    pub pinned: MemoryAnswer,
    /// The device memory that all instances of the cycle leak together.
    pub leaked_by_all_instances: MemoryAnswer,
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
    /// Whether removing this reference alone breaks the cycle.
    pub ends_the_cycle: bool,
    /// Whether the reference leads from a newer value to an older one, or from an unregistered value to a registered
    /// one, as a reference back to an owner does.
    pub leads_back: bool,
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
    /// The number of unexplained handles.
    pub handles: u64,
    /// The place where the handles were created, as `file:line:column`.
    pub site: String,
    /// The root scope in which the handles were created; null if there was none.
    pub scope: Option<String>,
    /// The number of root scopes that have ended since the oldest of the handles was created.
    pub ended_roots: u64,
}

/// Handles that were created at one place and that no known reference accounts for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SiteAnswer {
    /// The label of the first value that the handles keep alive.
    pub label: String,
    /// The place where the handles were created, as `file:line:column`.
    pub site: String,
    /// The root scope in which the handles were created; null if there was none.
    pub scope: Option<String>,
    /// The number of unexplained handles.
    pub handles: u64,
    /// The number of values that the handles keep alive.
    pub values: u64,
    /// The number of root scopes that have ended since the oldest of the handles was created.
    pub ended_roots: u64,
    /// The device memory that the handles lead to.
    pub held: MemoryAnswer,
}

fn origin_name(graph: &Graph) -> &'static str {
    match graph.origin {
        Origin::Python => "python",
        Origin::Rust => "rust",
    }
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
        leaked: bytes_to_answer(findings.leaked),
        unreachable_beside_cycles: bytes_to_answer(findings.unreachable_beside_cycles),
    }
}

fn cycles_to_answer(graph: &Graph, findings: &Findings) -> Vec<CycleAnswer> {
    findings.cycles.iter().map(|cycle| cycle_to_answer(graph, cycle)).collect()
}

/// Converts a cycle to its JSON form.
fn cycle_to_answer(graph: &Graph, cycle: &Cycle) -> CycleAnswer {
    let kind = match cycle.proof {
        Proof::Proved => "unreachable",
        Proof::WeakHandles => "unreachable_but_weak_handles",
        Proof::HeldOutside => "held_from_outside",
    };
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
    let cuts = cycle.cuts.iter();
    let weak = cuts.map(|cut| CutAnswer {
        step: step_to_answer(graph, cut.edge),
        ends_the_cycle: cut.ends_it,
        leads_back: cut.leads_back,
    });
    CycleAnswer {
        kind,
        instances: cycle.instances,
        leaked: bytes_to_answer(cycle.leaked),
        exclusive: bytes_to_answer(cycle.exclusive),
        pinned: bytes_to_answer(cycle.pinned),
        leaked_by_all_instances: bytes_to_answer(cycle.all_leaked),
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

/// Converts a total to its JSON form, with bytes only if the size of every storage is known.
fn bytes_to_answer(bytes: Bytes) -> MemoryAnswer {
    MemoryAnswer {
        size_bytes: (bytes.unknown == 0).then_some(bytes.known_bytes),
        storages: bytes.storages,
        storages_of_unknown_size: bytes.unknown,
    }
}

fn unexplained_to_answer(graph: &Graph) -> Vec<UnexplainedAnswer> {
    let answer = |handles: &crate::graph::UnexplainedHandles| UnexplainedAnswer {
        node: handles.node,
        label: graph.label(handles.node).into(),
        handles: handles.handles,
        site: handles.site.clone(),
        scope: handles.scope.clone(),
        ended_roots: handles.ended_roots,
    };
    graph.unexplained.iter().map(answer).collect()
}

/// Converts the groups of unexplained handles to their JSON form.
fn sites_to_answer(graph: &Graph, findings: &Findings) -> Vec<SiteAnswer> {
    let answer = |handles: &crate::findings::HandleGroup| {
        let first = &graph.unexplained[handles.first];
        SiteAnswer {
            label: graph.label(first.node).into(),
            site: first.site.clone(),
            scope: first.scope.clone(),
            handles: handles.handles,
            values: handles.values,
            ended_roots: handles.ended_roots,
            held: bytes_to_answer(handles.held),
        }
    };
    findings.unexplained.iter().map(answer).collect()
}

/// A list that is produced while it is serialized.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(None)?;
        (self.0)().try_for_each(|item| list.serialize_element(&item))?;
        list.end()
    }
}

struct Node<'a> {
    graph: &'a Graph,
    node: u32,
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { graph, node: id } = *self;
        let node = &graph.nodes[id as usize];
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &id)?;
        map.serialize_entry("label", graph.text(node.label))?;
        let texts =
            [("allocated", node.allocated), ("created", node.created), ("incomplete", node.incomplete)];
        for (key, text) in texts {
            if let Some(text) = text {
                map.serialize_entry(key, graph.text(text))?;
            }
        }
        map.serialize_entry("root", &node.root)?;
        let held = match node.held {
            Reachability::Unreachable => "unreachable",
            Reachability::Outside(_) => "outside",
            Reachability::Reachable => "reachable",
        };
        map.serialize_entry("held", held)?;
        if let Reachability::Outside(handles) = node.held {
            map.serialize_entry("held_outside", &handles)?;
        }
        if node.weak_outside > 0 {
            map.serialize_entry("weak_outside", &node.weak_outside)?;
        }
        if let Some(serial) = node.serial {
            map.serialize_entry("serial", &serial)?;
        }
        let memory = graph.memory_of(id);
        if !memory.is_empty() {
            map.serialize_entry(
                "memory",
                &Each(|| memory.iter().map(|memory| MemoryJson { graph, memory })),
            )?;
        }
        map.end()
    }
}

struct MemoryJson<'a> {
    graph: &'a Graph,
    memory: &'a Memory,
}

impl Serialize for MemoryJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("device", self.graph.text(self.memory.device))?;
        map.serialize_entry("storage", &self.memory.storage)?;
        map.serialize_entry("bytes", &self.memory.size_bytes)?;
        map.end()
    }
}

struct EdgeJson<'a> {
    graph: &'a Graph,
    edge: &'a Edge,
}

impl Serialize for EdgeJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("from", &self.edge.from)?;
        map.serialize_entry("to", &self.edge.to)?;
        map.serialize_entry("path", self.graph.text(self.edge.path))?;
        map.end()
    }
}

struct PytorchNodeJson<'a> {
    graph: &'a Graph,
    node: u32,
}

impl Serialize for PytorchNodeJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let graph = self.graph;
        let node = &graph.nodes[self.node as usize];
        let references = graph.edges_of(self.node);
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("label", graph.text(node.label))?;
        map.serialize_entry("context", &node.allocated.map(|text| graph.text(text)))?;
        map.serialize_entry("root", &node.root)?;
        map.serialize_entry(
            "references",
            &Each(|| graph.edges[references.clone()].iter().map(|edge| (graph.text(edge.path), edge.to))),
        )?;
        map.end()
    }
}
