//! A graph of values, the references between them, and the device memory that they hold. A subgraph keeps the part that
//! leads to device memory, because the rest of the garbage is irrelevant; these are the nodes that `create_graph` from
//! `torch.utils.viz._cycles` keeps.

use foldhash::HashMap;
use serde::Serialize;

/// The index of an interned text. Texts are interned because most labels occur many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

/// The texts in a graph, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, TextId>,
}

impl Texts {
    /// Returns the index of a text, adding the text if it is new.
    pub fn intern(&mut self, text: &str) -> TextId {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = TextId(
            u32::try_from(self.texts.len())
                .expect("fewer texts than nodes and edges, which are counted in 32 bits"),
        );
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// Returns the text at an index that [`intern`](Self::intern) returned.
    pub fn get(&self, text: TextId) -> &str {
        &self.texts[text.0 as usize]
    }
}

/// The source of a graph, which determines what is known about its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Garbage found by Python's collector. Nothing outside the graph refers to it.
    Python,
    /// A scan of a Rust program. The scan determines for each value whether it is held from outside.
    Rust,
}

memtrack_model::serialize_as!(Origin => &'static str: |origin| match origin {
    Origin::Python => "python",
    Origin::Rust => "rust",
});

/// The reachability of a value, and what holds the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Only unreachable values hold the value, as proved by counting the pointers to it.
    Unreachable,
    /// The value is held by this many strong pointers that are not in any value of the graph. These pointers can be
    /// anywhere, and might have been forgotten.
    Outside(u64),
    /// The value is held by another value, which is itself held from outside the graph or reachable from a value that is.
    Reachable,
}

/// A value in the graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// A description of one or more lines, with the value's type and a summary of its contents.
    pub label: TextId,
    /// The stack that allocated the value's device memory, with one frame per line, or `None` if it is unknown.
    pub allocated: Option<TextId>,
    /// The place where the value was registered: a line of the program, or a stack with one frame per line. `None` if the
    /// value was not registered.
    pub created: Option<TextId>,
    /// Whether the value holds device memory directly.
    pub root: bool,
    /// What keeps the value alive.
    pub held: Reachability,
    /// The number of weak pointers to the value from outside the unreachable values. The program can still reach the value
    /// through them.
    pub weak_outside: u64,
    /// The reason why some of the value's references are unknown, or `None` if all of them are known.
    pub incomplete: Option<TextId>,
    /// The value's position in registration order, if known. Newer values have higher numbers.
    pub serial: Option<u64>,
}

/// A strong pointer. (Weak pointers keep nothing alive, so a graph does not contain them.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edge {
    /// The value that contains the pointer, as an index into [`Graph::nodes`].
    pub from: u32,
    /// The value that the pointer points to, as an index into [`Graph::nodes`].
    pub to: u32,
    /// The path from the containing value to the pointer, such as `.hooks[0]`.
    pub path: TextId,
}

/// Device memory held by a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The value that holds the memory, as an index into [`Graph::nodes`].
    pub node: u32,
    /// The device, such as `cuda:0` or `host`.
    pub device: TextId,
    /// The identity of the storage on the device, which is either its address or a number. Two values may hold the same
    /// storage.
    pub storage: u64,
    /// The size of the storage, if known.
    pub size_bytes: Option<u64>,
}

/// Tracked handles to one value, created at one place, that a scan did not find because they were forgotten or are
/// stored where a scan cannot see them. They are never reported as a cycle or a leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnexplainedHandles {
    /// The value that the handles keep alive, as an index into [`Graph::nodes`].
    #[serde(skip)]
    pub node: u32,
    /// The number of unexplained handles.
    pub handles: u64,
    /// The place where the handles were created, as `file:line:column`.
    pub site: String,
    /// The root scope in which the handles were created; null if there was none. It has ended, unless the scan was
    /// asked for handles whose root scope has not ended.
    pub scope: Option<String>,
    /// The number of root scopes that have ended on the thread since the oldest of the handles was created.
    pub ended_roots: u64,
}

/// Values and the references between them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Graph {
    /// The source of the graph.
    pub origin: Origin,
    /// The texts that the other fields refer to.
    pub texts: Texts,
    /// The values. Other fields refer to them by index.
    pub nodes: Vec<Node>,
    /// The strong pointers, grouped by the value that contains them, in node order.
    pub edges: Vec<Edge>,
    /// The index in `edges` at which each node's edges start, followed by the total number of edges.
    pub starts: Vec<u32>,
    /// The device memory that the values hold, in node order.
    pub memory: Vec<Memory>,
    /// Handles that the scan did not find in any value.
    pub unexplained: Vec<UnexplainedHandles>,
    /// Remarks for the user about how the graph was obtained, such as `confirmed by 3 scans` or `1,000,000 values were
    /// left out`.
    pub remarks: Vec<String>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            texts: Texts::default(),
            nodes: Vec::new(),
            edges: Vec::new(),
            starts: vec![0],
            memory: Vec::new(),
            unexplained: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Sorts edges and memory, which may be in any order, into the order documented for the fields. The edges of each
    /// node keep their relative order.
    pub fn sort(&mut self) {
        self.edges.sort_by_key(|edge| edge.from);
        self.memory.sort_by_key(|memory| memory.node);
        self.starts.clear();
        self.starts.reserve(self.nodes.len() + 1);
        let mut next = 0;
        for node in 0..=self.nodes.len() as u32 {
            while self.edges.get(next).is_some_and(|edge| edge.from < node) {
                next += 1;
            }
            self.starts.push(next as u32);
        }
    }

    /// Returns the range of a node's references in `edges`.
    pub fn edges_of(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// Returns the device memory that a node holds.
    pub fn memory_of(&self, node: u32) -> &[Memory] {
        let begin = self.memory.partition_point(|memory| memory.node < node);
        let count = self.memory[begin..].partition_point(|memory| memory.node == node);
        &self.memory[begin..begin + count]
    }

    /// Returns the text at an index.
    pub fn text(&self, text: TextId) -> &str {
        self.texts.get(text)
    }

    /// Returns the label of a node.
    pub fn label(&self, node: u32) -> &str {
        self.text(self.nodes[node as usize].label)
    }

    /// Returns, for each node, whether it holds device memory or leads to a node that does.
    pub fn leads_to_memory(&self) -> Vec<bool> {
        let referrers = Referrers::of(self);
        let mut kept: Vec<bool> = self.nodes.iter().map(|node| node.root).collect();
        let mut left: Vec<u32> = (0..self.nodes.len() as u32).filter(|&node| kept[node as usize]).collect();
        while let Some(node) = left.pop() {
            for &edge in referrers.of_node(node) {
                let from = self.edges[edge as usize].from;
                if !std::mem::replace(&mut kept[from as usize], true) {
                    left.push(from);
                }
            }
        }
        kept
    }

    /// Returns the subgraph of the nodes that hold device memory or lead to a node that does.
    #[must_use]
    pub fn device_memory_subgraph(&self) -> Graph {
        self.subgraph(&self.leads_to_memory())
    }

    /// Returns the subgraph of the nodes for which `keep` is true, in the same order, with the edges between them and
    /// the memory that they hold.
    #[must_use]
    pub fn subgraph(&self, keep: &[bool]) -> Graph {
        let mut places = vec![None; self.nodes.len()];
        let mut nodes = Vec::new();
        for (node, place) in places.iter_mut().enumerate().filter(|(node, _)| keep[*node]) {
            *place = Some(nodes.len() as u32);
            nodes.push(self.nodes[node].clone());
        }
        let place = |node: u32| places[node as usize];
        let edge = |edge: &Edge| Some(Edge { from: place(edge.from)?, to: place(edge.to)?, path: edge.path });
        let memory = |&memory: &Memory| Some(Memory { node: place(memory.node)?, ..memory });
        let unexplained = |handles: &UnexplainedHandles| {
            Some(UnexplainedHandles { node: place(handles.node)?, ..handles.clone() })
        };
        let mut graph = Graph {
            origin: self.origin,
            texts: self.texts.clone(),
            nodes,
            edges: self.edges.iter().filter_map(edge).collect(),
            starts: Vec::new(),
            memory: self.memory.iter().filter_map(memory).collect(),
            unexplained: self.unexplained.iter().filter_map(unexplained).collect(),
            remarks: self.remarks.clone(),
        };
        graph.sort();
        graph
    }
}

/// The edges that lead to each node.
pub(crate) struct Referrers {
    starts: Vec<u32>,
    edges: Vec<u32>,
}

impl Referrers {
    pub fn of(graph: &Graph) -> Self {
        let mut starts = vec![0_u32; graph.nodes.len() + 1];
        for edge in &graph.edges {
            starts[edge.to as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut edges = vec![0_u32; graph.edges.len()];
        for (edge, number) in graph.edges.iter().zip(0..) {
            edges[next[edge.to as usize] as usize] = number;
            next[edge.to as usize] += 1;
        }
        Self { starts, edges }
    }

    /// Returns the edges that lead to a node, as indices into the graph's edges.
    pub fn of_node(&self, node: u32) -> &[u32] {
        &self.edges[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}
