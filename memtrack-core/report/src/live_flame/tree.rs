//! A tree of stacks, in which stacks with the same outermost frames share nodes.

use super::escape_label;
use std::collections::HashMap;

/// The kind of a rectangle, which determines its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RectangleKind {
    /// A device.
    #[default]
    Device,
    /// A function in the user's code.
    Mine,
    /// A framework's function.
    Framework,
    /// Memory whose stack is unknown.
    Unknown,
    /// Functions that were removed because they are too small.
    Rest,
}

/// A function in the context of its callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) label: String,
    pub(crate) colour: RectangleKind,
    pub(crate) parent: usize,
    pub(crate) children: Vec<usize>,
    /// Bytes allocated by the function itself.
    pub(crate) own: u64,
    /// Bytes allocated by the function and everything that it called.
    pub(crate) bytes: u64,
    /// If two files are compared, the bytes in the earlier file: first those of the function itself, then including
    /// everything that it called.
    pub(crate) before: [u64; 2],
    /// The depth of the node in the tree, with the root at 0.
    pub(crate) depth: usize,
}

/// The tree of all stacks. The root has no name.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    children: HashMap<(usize, String), usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], children: HashMap::new() }
    }
}

impl Tree {
    /// The index of the root node.
    pub(crate) const ROOT: usize = 0;

    /// Returns the child of `parent` with this label, creating it if it does not exist.
    pub(crate) fn get_or_add_child(&mut self, parent: usize, label: &str, colour: RectangleKind) -> usize {
        let next = self.nodes.len();
        let child = *self.children.entry((parent, label.to_owned())).or_insert(next);
        if child == next {
            let depth = self.nodes[parent].depth + 1;
            self.nodes.push(Node { label: label.to_owned(), colour, parent, depth, ..Node::default() });
            self.nodes[parent].children.push(child);
        }
        child
    }

    pub(crate) fn label(&self, node: usize) -> &str {
        &self.nodes[node].label
    }

    /// Adds bytes allocated by a function itself.
    pub(crate) fn add(&mut self, node: usize, bytes: u64) {
        self.add_both(node, 0, bytes);
    }

    /// Adds bytes allocated by a function itself in the earlier and in the later of two files.
    pub(crate) fn add_both(&mut self, node: usize, before: u64, bytes: u64) {
        let one = &mut self.nodes[node];
        one.own = one.own.saturating_add(bytes);
        one.before[0] = one.before[0].saturating_add(before);
        let mut at = node;
        loop {
            let one = &mut self.nodes[at];
            one.bytes = one.bytes.saturating_add(bytes);
            one.before[1] = one.before[1].saturating_add(before);
            if at == Self::ROOT {
                return;
            }
            at = one.parent;
        }
    }

    /// Returns a line `frame;frame;… bytes` for each node with bytes of its own, sorted by name.
    pub(crate) fn format_lines(&self) -> Vec<String> {
        let with_bytes = (1..self.nodes.len()).filter(|&node| self.nodes[node].own > 0);
        let line = |node| format!("{} {}", self.node_path(node), self.nodes[node].own);
        let mut lines: Vec<String> = with_bytes.map(line).collect();
        lines.sort_unstable();
        lines
    }

    fn node_path(&self, node: usize) -> String {
        let mut path = Vec::with_capacity(self.nodes[node].depth);
        let mut at = node;
        while at != Self::ROOT {
            path.push(escape_label(&self.nodes[at].label));
            at = self.nodes[at].parent;
        }
        path.reverse();
        path.join(";")
    }
}
