//! The referrers of each node, found by reversing the edges.

use crate::graph::Graph;

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
