//! Finds strongly connected components, which are sets of values in which each value leads to every other. Tarjan's
//! algorithm runs with an explicit stack, so that a chain of a million values needs no more of the thread's stack than
//! a chain of ten.

use crate::graph::Graph;

/// The component that each node belongs to.
#[derive(Debug)]
pub(crate) struct Components {
    /// Each node's component number. A component's number is higher than the numbers of all components to which it
    /// leads.
    pub(crate) of_node: Vec<u32>,
    /// The number of components.
    pub(crate) count: u32,
}

/// A number that no node or component has.
const NONE: u32 = u32::MAX;

impl Components {
    /// Finds the components of a graph, considering only the edges for which `follow` returns true.
    pub(crate) fn of(graph: &Graph, follow: impl Fn(usize) -> bool) -> Self {
        Self::find_components(
            graph.nodes.len(),
            |node| graph.edges_of(node),
            |edge| follow(edge).then(|| graph.edges[edge].to),
        )
    }

    /// Finds the components of `count` nodes. `edges` returns the indices of a node's edges, and `target` returns the
    /// node to which an edge leads, or `None` for an edge to ignore.
    pub(crate) fn find_components(
        count: usize,
        edges: impl Fn(u32) -> std::ops::Range<usize>,
        target: impl Fn(usize) -> Option<u32>,
    ) -> Self {
        let mut order = vec![NONE; count];
        let mut lowest = vec![NONE; count];
        let mut component_of = vec![NONE; count];
        let mut open = Vec::new();
        let mut path: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
        let (mut next, mut components) = (0, 0);
        for start in 0..count as u32 {
            if order[start as usize] != NONE {
                continue;
            }
            path.push((start, edges(start)));
            order[start as usize] = next;
            lowest[start as usize] = next;
            next += 1;
            open.push(start);
            while let Some((node, left)) = path.last_mut() {
                let node = *node as usize;
                if let Some(edge) = left.next() {
                    let Some(to) = target(edge) else { continue };
                    if order[to as usize] == NONE {
                        order[to as usize] = next;
                        lowest[to as usize] = next;
                        next += 1;
                        open.push(to);
                        path.push((to, edges(to)));
                    } else if component_of[to as usize] == NONE {
                        lowest[node] = lowest[node].min(order[to as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    lowest[parent as usize] = lowest[parent as usize].min(lowest[node]);
                }
                if lowest[node] == order[node] {
                    while let Some(member) = open.pop() {
                        component_of[member as usize] = components;
                        if member as usize == node {
                            break;
                        }
                    }
                    components += 1;
                }
            }
        }
        Self { of_node: component_of, count: components }
    }

    /// Returns the nodes, grouped by component.
    pub(crate) fn members(&self) -> Members {
        let mut starts = vec![0; self.count as usize + 1];
        for &component in &self.of_node {
            starts[component as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut nodes = vec![0; self.of_node.len()];
        for (node, &component) in self.of_node.iter().enumerate() {
            nodes[next[component as usize] as usize] = node as u32;
            next[component as usize] += 1;
        }
        Members { starts, nodes }
    }
}

/// The nodes of each component.
#[derive(Debug)]
pub(crate) struct Members {
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Members {
    /// Returns the nodes of one component in graph order.
    pub(crate) fn nodes_of(&self, component: u32) -> &[u32] {
        &self.nodes[self.starts[component as usize] as usize..self.starts[component as usize + 1] as usize]
    }
}
