//! The graph with its findings as JSON (docs/CYCLES.md), which [`read`](crate::read) reads again.

use crate::findings::{Bytes, Cycle, Findings, Proof};
use crate::graph::{Edge, Graph, Held, Memory, Origin};
use crate::read::VERSION;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde_json::json;
use std::io::{self, Write};

/// Writes both.
///
/// # Errors
/// What `out` fails with.
pub fn write(graph: &Graph, findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    let mut json = serde_json::Serializer::new(&mut *out);
    let mut map = json.serialize_map(None)?;
    map.serialize_entry("memtrack_cycles", &VERSION)?;
    map.serialize_entry("origin", origin(graph))?;
    map.serialize_entry("remarks", &graph.remarks)?;
    map.serialize_entry("counts", &counts(graph, findings))?;
    map.serialize_entry("findings", &cycles(graph, findings))?;
    map.serialize_entry("unexplained_sites", &unexplained_sites(graph, findings))?;
    map.serialize_entry("unexplained", &unexplained(graph))?;
    map.serialize_entry("nodes", &Each(|| (0..graph.nodes.len() as u32).map(|node| Node { graph, node })))?;
    map.serialize_entry("edges", &Each(|| graph.edges.iter().map(|edge| OwnEdge { graph, edge })))?;
    SerializeMap::end(map)?;
    out.write_all(b"\n")
}

/// Writes the nodes as PyTorch's `create_graph` has them.
///
/// # Errors
/// What `out` fails with.
pub fn write_nodes(graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    let nodes = Each(|| (0..graph.nodes.len() as u32).map(|node| PytorchNode { graph, node }));
    serde_json::to_writer_pretty(&mut *out, &nodes)?;
    out.write_all(b"\n")
}

/// The findings alone.
pub fn findings(graph: &Graph, findings: &Findings) -> serde_json::Value {
    json!({
        "origin": origin(graph),
        "remarks": graph.remarks,
        "counts": counts(graph, findings),
        "findings": cycles(graph, findings),
        "unexplained_sites": unexplained_sites(graph, findings),
        "unexplained": unexplained(graph),
    })
}

fn origin(graph: &Graph) -> &'static str {
    match graph.origin {
        Origin::Python => "python",
        Origin::Rust => "rust",
    }
}

fn counts(graph: &Graph, findings: &Findings) -> serde_json::Value {
    json!({
        "nodes": graph.nodes.len(),
        "edges": graph.edges.len(),
        "incomplete": graph.nodes.iter().filter(|node| node.incomplete.is_some()).count(),
        "device_buffers": graph.nodes.iter().filter(|node| node.root).count(),
        "cycles": findings.cycles.iter().map(|cycle| cycle.instances).sum::<u64>(),
        "cycles_without_device_memory": findings.without_memory,
        "cycles_not_measured": findings.not_measured,
        "leaked": bytes(findings.leaked),
        "unreachable_beside_cycles": bytes(findings.beside),
    })
}

fn cycles(graph: &Graph, findings: &Findings) -> Vec<serde_json::Value> {
    findings.cycles.iter().map(|cycle| cycle_json(graph, cycle)).collect()
}

/// What the program says of a cycle, without the graph.
fn cycle_json(graph: &Graph, cycle: &Cycle) -> serde_json::Value {
    let kind = match cycle.proof {
        Proof::Proved => "unreachable",
        Proof::WeakHandles => "unreachable_but_weak_handles",
        Proof::HeldOutside => "held_from_outside",
    };
    let way = |edges: &[u32], steps: usize| -> serde_json::Value {
        /// Most steps that are written of a way at each end.
        const WRITTEN: usize = 32;
        let end = |edges: &[u32]| -> Vec<_> { edges.iter().map(|&edge| step(graph, edge)).collect() };
        match edges.len() {
            count if count > 2 * WRITTEN || count < steps => {
                let (first, last) = (&edges[..WRITTEN], &edges[count - WRITTEN..]);
                json!({ "steps": steps, "first": end(first), "last": end(last) })
            }
            _ => json!({ "steps": steps, "first": end(edges), "last": [] }),
        }
    };
    let weak: Vec<_> = cycle
        .cuts
        .iter()
        .map(|cut| {
            let mut step = step(graph, cut.edge);
            step["ends_the_cycle"] = cut.ends_it.into();
            step["leads_back"] = cut.leads_back.into();
            step
        })
        .collect();
    json!({
        "kind": kind,
        "instances": cycle.instances,
        "leaked": bytes(cycle.leaked),
        "exclusive": bytes(cycle.exclusive),
        "pinned": bytes(cycle.pinned),
        "leaked_by_all_instances": bytes(cycle.all_leaked),
        "held_from_outside_by": cycle.held_by,
        "weak_handles": cycle.weak_outside,
        "behind": cycle.behind,
        "cycle": way(&cycle.around, cycle.around.len()),
        "way_to_memory": way(&cycle.to_memory, cycle.to_memory_steps),
        "memory_node": cycle.memory_node,
        "make_weak": weak,
        "make_weak_is_enough": cycle.cuts_are_enough,
        "nodes": cycle.nodes,
    })
}

fn step(graph: &Graph, edge: u32) -> serde_json::Value {
    let Edge { from, to, path } = graph.edges[edge as usize];
    json!({ "from": from, "from_label": graph.label(from), "path": graph.text(path), "to": to, "to_label": graph.label(to) })
}

/// Bytes only where each storage's size is known.
fn bytes(bytes: Bytes) -> serde_json::Value {
    json!({
        "bytes": (bytes.unknown == 0).then_some(bytes.known_bytes),
        "storages": bytes.storages,
        "storages_of_unknown_size": bytes.unknown,
    })
}

fn unexplained(graph: &Graph) -> Vec<serde_json::Value> {
    let each = graph.unexplained.iter();
    each.map(|handles| {
        json!({
            "node": handles.node,
            "label": graph.label(handles.node),
            "handles": handles.handles,
            "site": handles.site,
            "scope": handles.scope,
            "ended_roots": handles.ended_roots,
        })
    })
    .collect()
}

/// The same by where they were made.
fn unexplained_sites(graph: &Graph, findings: &Findings) -> Vec<serde_json::Value> {
    let each = findings.unexplained.iter();
    each.map(|handles| {
        let first = &graph.unexplained[handles.first];
        json!({
            "label": graph.label(first.node),
            "site": first.site,
            "scope": first.scope,
            "handles": handles.handles,
            "values": handles.values,
            "ended_roots": handles.ended_roots,
            "held": bytes(handles.held),
        })
    })
    .collect()
}

/// A list that is made while it is written.
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
            Held::Unreachable => "unreachable",
            Held::Outside(_) => "outside",
            Held::Reachable => "reachable",
        };
        map.serialize_entry("held", held)?;
        if let Held::Outside(handles) = node.held {
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
            map.serialize_entry("memory", &Each(|| memory.iter().map(|memory| OwnMemory { graph, memory })))?;
        }
        map.end()
    }
}

struct OwnMemory<'a> {
    graph: &'a Graph,
    memory: &'a Memory,
}

impl Serialize for OwnMemory<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("device", self.graph.text(self.memory.device))?;
        map.serialize_entry("storage", &self.memory.storage)?;
        map.serialize_entry("bytes", &self.memory.size_bytes)?;
        map.end()
    }
}

struct OwnEdge<'a> {
    graph: &'a Graph,
    edge: &'a Edge,
}

impl Serialize for OwnEdge<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("from", &self.edge.from)?;
        map.serialize_entry("to", &self.edge.to)?;
        map.serialize_entry("path", self.graph.text(self.edge.path))?;
        map.end()
    }
}

struct PytorchNode<'a> {
    graph: &'a Graph,
    node: u32,
}

impl Serialize for PytorchNode<'_> {
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
