//! The graph: values, which of them refers to which, and the device memory that they hold.

use foldhash::HashMap;

/// A text of a graph, by its number: most labels occur many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub u32);

/// The texts of a graph, each once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, Text>,
}

impl Texts {
    /// The number of a text, a new one where there was none.
    pub fn number(&mut self, text: &str) -> Text {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = Text(
            u32::try_from(self.texts.len())
                .expect("fewer texts than nodes and edges, which are counted in 32 bits"),
        );
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// The text of a number that this gave out.
    pub fn get(&self, text: Text) -> &str {
        &self.texts[text.0 as usize]
    }
}

/// Where a graph comes from, which decides what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The garbage of Python's collector: nothing outside of it refers to it.
    Python,
    /// A scan of a program in Rust, which says of each value whether it is held from outside.
    Rust,
}

/// What keeps a value alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing but other values that are held by nothing else: proved by counting.
    Unreachable,
    /// So many strong pointers that are in no value of the graph; they may be anywhere, and may have been forgotten.
    Outside(u64),
    /// A value that is itself held from outside, or by such a one.
    Reachable,
}

/// A value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// What it is, in one or more lines: its type, and its contents in short.
    pub label: Text,
    /// Where its device memory was allocated: a frame to a line.
    pub allocated: Option<Text>,
    /// Where it was registered: a place in the program, or a frame to a line.
    pub created: Option<Text>,
    /// Whether it has device memory.
    pub root: bool,
    /// What keeps it alive.
    pub held: Held,
    /// How many weak pointers to it are outside of what is unreachable: who has one can still reach the value.
    pub weak_outside: u64,
    /// Why not all that it refers to is known.
    pub incomplete: Option<Text>,
    /// Its place in the order in which values were registered, where that is known: a younger one has a higher number.
    pub serial: Option<u64>,
}

/// A strong pointer. (Weak ones keep nothing alive and are in no graph.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edge {
    /// Whose it is, as a place in [`Graph::nodes`].
    pub from: u32,
    /// Where it leads.
    pub to: u32,
    /// From the one to the other: `.hooks[0]`.
    pub path: Text,
}

/// Device memory that a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Whose it is, as a place in [`Graph::nodes`].
    pub node: u32,
    /// The device: `cuda:0`, or `host`.
    pub device: Text,
    /// What tells it from other memory of the device: its address, or a number. Two values may hold the same.
    pub storage: u64,
    /// How much it is, where that is known.
    pub size_bytes: Option<u64>,
}

/// Tracked handles of one value, made at one place, that nobody accounts for: forgotten, or where a scan cannot see them. Never
/// called a cycle, nor a leak.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unexplained {
    /// The value that they keep alive, as a place in [`Graph::nodes`].
    pub node: u32,
    /// How many.
    pub handles: u64,
    /// Where they were made: a place in the program.
    pub site: String,
    /// The root scope that was running then, and has ended since.
    pub scope: Option<String>,
    /// How many root scopes have ended on the thread since the oldest of them was made.
    pub ended_roots: u64,
}

/// Who refers to whom.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Graph {
    /// Where it comes from.
    pub origin: Origin,
    /// The texts of all others.
    pub texts: Texts,
    /// The values.
    pub nodes: Vec<Node>,
    /// The strong pointers, those of a value side by side, in the order of the nodes.
    pub edges: Vec<Edge>,
    /// Where each node's edges begin in `edges`, and one more for their end.
    pub starts: Vec<u32>,
    /// Device memory, in the order of the nodes.
    pub memory: Vec<Memory>,
    /// Handles that nobody accounts for.
    pub unexplained: Vec<Unexplained>,
    /// What people must know of how it was made: `confirmed by 3 scans`; `1,000,000 values were left out`.
    pub remarks: Vec<String>,
}

impl Graph {
    /// A graph without anything.
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

    /// Puts edges and memory, which may be in any order, into the order that the fields promise. What one node's edges
    /// are among themselves stays.
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

    /// The places in `edges` of what a node refers to.
    pub fn edges_of(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// The device memory of a node.
    pub fn memory_of(&self, node: u32) -> &[Memory] {
        let begin = self.memory.partition_point(|memory| memory.node < node);
        let count = self.memory[begin..].partition_point(|memory| memory.node == node);
        &self.memory[begin..begin + count]
    }

    /// A text.
    pub fn text(&self, text: Text) -> &str {
        self.texts.get(text)
    }

    /// A node's label.
    pub fn label(&self, node: u32) -> &str {
        self.text(self.nodes[node as usize].label)
    }
}
