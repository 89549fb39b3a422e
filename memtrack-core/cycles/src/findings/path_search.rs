//! Shortest paths along references.

use crate::graph::Graph;
use std::collections::VecDeque;

/// A breadth-first search for paths in a graph. It is created once per graph, so that each search costs only its own
/// steps.
#[derive(Debug)]
pub(super) struct PathSearch<'a> {
    graph: &'a Graph,
    /// For each node, the number of the last search that reached it, and the edge through which the search did so.
    reached: Vec<(u32, u32)>,
    search: u32,
    queue: VecDeque<u32>,
    /// The number of edges visited in all searches.
    pub(super) steps: u64,
}

/// The marker used in place of an edge for nodes at which a search started.
const START: u32 = u32::MAX;

impl<'a> PathSearch<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            reached: vec![(0, START); graph.nodes.len()],
            search: 0,
            queue: VecDeque::new(),
            steps: 0,
        }
    }

    /// Calls `each` with every node that can be reached from `starts`, nearest first and including the
    /// starts, along the edges for which `follow` returns true, until `each` returns false.
    pub(super) fn visit(
        &mut self,
        starts: impl IntoIterator<Item = u32>,
        follow: impl Fn(usize) -> bool,
        mut each: impl FnMut(u32) -> bool,
    ) {
        self.search += 1;
        self.queue.clear();
        for start in starts {
            if self.reached[start as usize].0 != self.search {
                self.reached[start as usize] = (self.search, START);
                self.queue.push_back(start);
            }
        }
        while let Some(node) = self.queue.pop_front() {
            if !each(node) {
                return;
            }
            for edge in self.graph.edges_of(node) {
                self.steps += 1;
                let to = self.graph.edges[edge].to as usize;
                if self.reached[to].0 != self.search && follow(edge) {
                    self.reached[to] = (self.search, edge as u32);
                    self.queue.push_back(to as u32);
                }
            }
        }
    }

    /// Returns the edges along which the last search reached `node`, from its starting node.
    fn path_to(&self, mut node: u32) -> Vec<u32> {
        let mut edges = Vec::new();
        while let (_, edge) = self.reached[node as usize]
            && edge != START
        {
            edges.push(edge);
            node = self.graph.edges[edge as usize].from;
        }
        edges.reverse();
        edges
    }

    /// Returns the nearest node for which `is_end` returns true, and a shortest path to it from one of `starts`, along
    /// the edges for which `follow` returns true.
    pub(super) fn find_shortest_path(
        &mut self,
        starts: impl IntoIterator<Item = u32>,
        follow: impl Fn(usize) -> bool,
        is_end: impl Fn(u32) -> bool,
    ) -> Option<(u32, Vec<u32>)> {
        let mut end = None;
        self.visit(starts, follow, |node| {
            end = is_end(node).then_some(node);
            end.is_none()
        });
        end.map(|end| (end, self.path_to(end)))
    }

    /// Returns a shortest closed path that starts and ends at `node`, along the edges for which `follow` returns true.
    pub(super) fn find_closed_path(&mut self, node: u32, follow: impl Fn(usize) -> bool) -> Option<Vec<u32>> {
        let graph = self.graph;
        let back = |from: u32| {
            graph
                .edges_of(from)
                .find(|&edge| graph.edges[edge].to == node && follow(edge))
                .map(|edge| edge as u32)
        };
        let (end, mut path) = self.find_shortest_path([node], &follow, |from| back(from).is_some())?;
        path.push(back(end)?);
        Some(path)
    }
}
