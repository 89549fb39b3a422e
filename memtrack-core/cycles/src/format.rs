//! The values and references of a graph in memtrack's files, as they are written and read.

use crate::graph::{Edge, Graph, Memory, Node, Reachability};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The format version of the files that memtrack writes.
pub(crate) const VERSION: u64 = 1;

/// A value.
#[derive(Serialize, Deserialize)]
pub(crate) struct NodeForm<'a> {
    #[serde(skip_deserializing)]
    id: u32,
    #[serde(borrow)]
    label: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    allocated: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    created: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    incomplete: Option<Cow<'a, str>>,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    held: HeldForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held_outside: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weak_outside: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    memory: Vec<MemoryForm<'a>>,
}

/// [`Reachability`] without the number of pointers.
#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum HeldForm {
    #[default]
    Unreachable,
    Outside,
    Reachable,
}

#[derive(Serialize, Deserialize)]
struct MemoryForm<'a> {
    #[serde(borrow)]
    device: Cow<'a, str>,
    storage: u64,
    #[serde(default)]
    bytes: Option<u64>,
}

/// A reference.
#[derive(Serialize, Deserialize)]
pub(crate) struct EdgeForm<'a> {
    pub(crate) from: u64,
    pub(crate) to: u64,
    #[serde(borrow)]
    pub(crate) path: Cow<'a, str>,
}

impl<'a> EdgeForm<'a> {
    pub(crate) fn of(graph: &'a Graph, edge: &Edge) -> Self {
        Self { from: edge.from.into(), to: edge.to.into(), path: graph.text(edge.path).into() }
    }
}

impl<'a> NodeForm<'a> {
    pub(crate) fn of(graph: &'a Graph, id: u32) -> Self {
        let node = &graph.nodes[id as usize];
        let text = |text| Cow::Borrowed(graph.text(text));
        let (held, held_outside) = match node.held {
            Reachability::Unreachable => (HeldForm::Unreachable, None),
            Reachability::Outside(handles) => (HeldForm::Outside, Some(handles)),
            Reachability::Reachable => (HeldForm::Reachable, None),
        };
        let memory = graph.memory_of(id).iter().map(|memory| MemoryForm {
            device: text(memory.device),
            storage: memory.storage,
            bytes: memory.size_bytes,
        });
        Self {
            id,
            label: text(node.label),
            allocated: node.allocated.map(text),
            created: node.created.map(text),
            incomplete: node.incomplete.map(text),
            root: node.root,
            held,
            held_outside,
            weak_outside: Some(node.weak_outside).filter(|&handles| handles > 0),
            serial: node.serial,
            memory: memory.collect(),
        }
    }

    /// Adds the value to a graph, in which it has the index `place`.
    pub(crate) fn add_to(&self, graph: &mut Graph, place: u32) {
        let texts = &mut graph.texts;
        for memory in &self.memory {
            let device = texts.intern(&memory.device);
            graph.memory.push(Memory {
                node: place,
                device,
                storage: memory.storage,
                size_bytes: memory.bytes,
            });
        }
        let label = texts.intern(&self.label);
        let mut text = |text: &Option<Cow<'_, str>>| text.as_deref().map(|text| texts.intern(text));
        let [allocated, created, incomplete] =
            [&self.allocated, &self.created, &self.incomplete].map(&mut text);
        graph.nodes.push(Node {
            label,
            allocated,
            created,
            root: self.root,
            held: match self.held {
                HeldForm::Unreachable => Reachability::Unreachable,
                HeldForm::Outside => Reachability::Outside(self.held_outside.unwrap_or(0)),
                HeldForm::Reachable => Reachability::Reachable,
            },
            weak_outside: self.weak_outside.unwrap_or(0),
            incomplete,
            serial: self.serial,
        });
    }
}
