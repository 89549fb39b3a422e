//! Selects the part of a graph that leads to device memory, because the rest of the garbage is irrelevant. The selected
//! nodes are those that `create_graph` from `torch.utils.viz._cycles` keeps.

use crate::graph::{Edge, Graph};
use crate::referrers::Referrers;

/// Returns, for each node, whether it holds device memory or leads to a node that does.
pub fn leads_to_memory(graph: &Graph) -> Vec<bool> {
    let referrers = Referrers::of(graph);
    let mut kept: Vec<bool> = graph.nodes.iter().map(|node| node.root).collect();
    let mut left: Vec<u32> = (0..graph.nodes.len() as u32).filter(|&node| kept[node as usize]).collect();
    while let Some(node) = left.pop() {
        for &edge in referrers.of_node(node) {
            let from = graph.edges[edge as usize].from;
            if !std::mem::replace(&mut kept[from as usize], true) {
                left.push(from);
            }
        }
    }
    kept
}

impl Graph {
    /// Returns the subgraph of the nodes that hold device memory or lead to a node that does.
    #[must_use]
    pub fn device_memory_subgraph(&self) -> Graph {
        self.subgraph(&leads_to_memory(self))
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
        let mut graph = Graph {
            origin: self.origin,
            texts: self.texts.clone(),
            nodes,
            edges: self.edges.iter().filter_map(edge).collect(),
            starts: Vec::new(),
            memory: Vec::new(),
            unexplained: Vec::new(),
            remarks: self.remarks.clone(),
        };
        graph.memory.extend(self.memory.iter().filter_map(|&memory| {
            let node = place(memory.node)?;
            Some(crate::graph::Memory { node, ..memory })
        }));
        graph.unexplained.extend(self.unexplained.iter().filter_map(|unexplained| {
            let node = place(unexplained.node)?;
            Some(crate::graph::UnexplainedHandles { node, ..unexplained.clone() })
        }));
        graph.sort();
        graph
    }
}
