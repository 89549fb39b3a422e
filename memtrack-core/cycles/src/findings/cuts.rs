//! Chooses the references to make weak. A programmer makes a reference weak by changing the declaration of a field, so
//! all of a cycle's references through the same field of the same type change together.

use super::Cut;
use super::components::Components;
use super::path_search::PathSearch;
use crate::graph::{Edge, Graph, Origin};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::cmp::Reverse;

/// The maximum number of alternatives that are listed, and of fields that change together.
const MAX_CUTS: usize = 8;
/// The maximum number of fields that are tried, and of edges visited while trying them.
const MAX_FIELDS_TRIED: usize = 32;
const MAX_EDGES_VISITED: usize = 4_000_000;
/// The maximum number of values from which to search for a shortest closed path.
const MAX_STARTS: usize = 16;

/// The ease with which a programmer can change a reference, easiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ease {
    /// Written by the programmer, such as an attribute, a captured variable or a local variable.
    ByProgrammer,
    /// Stored in a container, or implied by the form of a call.
    InContainer,
    /// Created by the language, such as a function's closure or an object's dictionary.
    ByLanguage,
}

/// A field, identified by the type that contains it, its path without indices, and the type that it refers to.
pub(super) type Field = (Box<str>, Box<str>, Box<str>);

/// Returns the field that an edge belongs to.
pub(super) fn field_of(graph: &Graph, edge: usize) -> Field {
    let edge = &graph.edges[edge];
    (
        type_label(graph, edge.from).into(),
        strip_indices(graph.text(edge.path)).into(),
        type_label(graph, edge.to).into(),
    )
}

/// Returns a node's type. For a Rust value, this is the first line of its label; the other lines are its contents.
pub(super) fn type_label(graph: &Graph, node: u32) -> &str {
    let label = graph.label(node);
    match graph.origin {
        Origin::Python => label,
        Origin::Rust => label.lines().next().unwrap_or_default(),
    }
}

/// Removes the indices from a path, because `.hooks[3]` is the same field as `.hooks[0]`.
fn strip_indices(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut depth = 0_u32;
    for character in path.chars() {
        match character {
            '[' => {
                depth += 1;
                if depth == 1 {
                    out.push_str("[]");
                }
            }
            ']' => depth = depth.saturating_sub(1),
            character if depth == 0 => out.push(character),
            _ => {}
        }
    }
    out
}

/// A cycle's values and the references between them.
pub(super) struct Cycle<'a> {
    graph: &'a Graph,
    nodes: &'a [u32],
    /// Whether an edge connects two of the cycle's values.
    inside: &'a dyn Fn(usize) -> bool,
    /// The index of each node in `nodes`.
    places: HashMap<u32, u32>,
}

impl<'a> Cycle<'a> {
    pub(super) fn new(graph: &'a Graph, nodes: &'a [u32], inside: &'a dyn Fn(usize) -> bool) -> Self {
        let places = nodes.iter().zip(0..).map(|(&node, place)| (node, place)).collect();
        Self { graph, nodes, inside, places }
    }

    /// Returns a short closed path in the cycle that avoids the edges in `cut`, or `None` if there is none. It is the
    /// shortest path through any of the few values that are tried.
    pub(super) fn find_closed_path(
        &self,
        search: &mut PathSearch<'_>,
        cut: &HashSet<usize>,
    ) -> Option<Vec<u32>> {
        let follow = |edge: usize| (self.inside)(edge) && !cut.contains(&edge);
        let turns = (MAX_EDGES_VISITED / 2 / self.nodes.len()).clamp(1, MAX_STARTS);
        let starts: Vec<u32> = if cut.is_empty() {
            self.nodes.iter().copied().take(turns).collect()
        } else {
            self.find_still_cyclic(cut)
        };
        let path = starts
            .into_iter()
            .filter_map(|node| search.find_closed_path(node, follow))
            .min_by_key(Vec::len)?;
        Some(self.rotate(path))
    }

    /// Rotates a closed path so that it starts at the oldest value, or at the first one in the graph if no ages are
    /// known.
    fn rotate(&self, mut path: Vec<u32>) -> Vec<u32> {
        let age = |edge: u32| {
            let from = self.graph.edges[edge as usize].from;
            (self.graph.nodes[from as usize].serial.unwrap_or(u64::MAX), from)
        };
        let oldest = (0..path.len()).min_by_key(|&at| age(path[at])).unwrap_or_default();
        path.rotate_left(oldest);
        path
    }

    /// Returns some of the values that are still on a cycle after the edges in `cut` are removed.
    fn find_still_cyclic(&self, cut: &HashSet<usize>) -> Vec<u32> {
        let target = |edge: usize| {
            let counts = (self.inside)(edge) && !cut.contains(&edge);
            counts.then(|| self.places.get(&self.graph.edges[edge].to).copied()).flatten()
        };
        let edges = |at: u32| self.graph.edges_of(self.nodes[at as usize]);
        let components = Components::find_components(self.nodes.len(), edges, target);
        let members = components.members();
        let is_cycle = |component: &u32| {
            let nodes = members.nodes_of(*component);
            nodes.len() > 1 || edges(nodes[0]).any(|edge| target(edge) == Some(nodes[0]))
        };
        (0..components.count)
            .filter(is_cycle)
            .map(|component| self.nodes[members.nodes_of(component)[0] as usize])
            .take(MAX_STARTS)
            .collect()
    }

    /// Returns the fields to make weak, and whether making them weak breaks every cycle among the values. The fields are
    /// either alternatives, any one of which is enough, or fields that are all needed.
    pub(super) fn find_cuts(&self, closed_path: &[u32], search: &mut PathSearch<'_>) -> (Vec<Cut>, bool) {
        let mut edges_by = HashMap::<Field, Vec<usize>>::new();
        for edge in
            self.nodes.iter().flat_map(|&node| self.graph.edges_of(node)).filter(|&edge| (self.inside)(edge))
        {
            edges_by.entry(field_of(self.graph, edge)).or_default().push(edge);
        }
        let tries = MAX_EDGES_VISITED / edges_by.values().map(Vec::len).sum::<usize>().max(1);
        let mut cut = HashSet::new();
        let mut ends: Vec<Cut> = self
            .fields_of(closed_path)
            .take(tries.max(2))
            .filter_map(|(field, edge)| {
                cut.clear();
                cut.extend(edges_by.get(&field)?);
                self.find_still_cyclic(&cut).is_empty().then(|| self.build_cut(edge, true))
            })
            .collect();
        if !ends.is_empty() {
            let ease = |cut: &Cut| self.ease(cut.edge);
            // The closed path starts at the oldest value, so its last reference usually leads back to an owner and is
            // the best one to make weak. Among equals, prefer references near the end of the path.
            ends.reverse();
            ends.sort_by_key(|cut| (ease(cut), !cut.leads_back));
            if let Some(best) = ends.first().map(ease) {
                // References created by the language are suggested only if there are no others.
                ends.retain(|cut| best == Ease::ByLanguage || ease(cut) != Ease::ByLanguage);
            }
            ends.truncate(MAX_CUTS);
            return (ends, true);
        }
        // No single field is enough, so add one field after another while a closed path remains.
        cut.clear();
        let mut together = Vec::new();
        let mut path = Some(closed_path.to_vec());
        while let Some(closed_path) = path.take_if(|_| together.len() < MAX_CUTS) {
            let best = self.fields_of(&closed_path).min_by_key(|(field, edge)| {
                let is_back = self.build_cut(*edge, false).leads_back;
                (self.ease(*edge), !is_back, Reverse(edges_by.get(field).map_or(0, Vec::len)))
            });
            let Some((field, edge)) = best else { break };
            cut.extend(edges_by.get(&field).into_iter().flatten());
            together.push(self.build_cut(edge, false));
            path = self.find_closed_path(search, &cut);
        }
        (together, path.is_none())
    }

    /// Returns the distinct fields along a path, each with its first edge.
    fn fields_of(&self, path: &[u32]) -> impl Iterator<Item = (Field, u32)> + use<> {
        let mut seen = HashSet::new();
        let fields: Vec<_> = path
            .iter()
            .map(|&edge| (field_of(self.graph, edge as usize), edge))
            .filter(|(field, _)| seen.insert(field.clone()))
            .take(MAX_FIELDS_TRIED)
            .collect();
        fields.into_iter()
    }

    /// Returns how easily a programmer can change a reference.
    fn ease(&self, edge: u32) -> Ease {
        let edge = &self.graph.edges[edge as usize];
        let path = self.graph.text(edge.path);
        match (self.graph.origin, path) {
            (Origin::Rust, _) => Ease::ByProgrammer,
            (_, "__self__" | "element" | "key") => Ease::InContainer,
            (_, path) if path == "?" || ["__", "f_", "tb_"].iter().any(|own| path.starts_with(own)) => {
                Ease::ByLanguage
            }
            // A tuple's items cannot be changed.
            (_, path) if path.starts_with('[') && self.graph.label(edge.from).starts_with('(') => {
                Ease::ByLanguage
            }
            // An attribute, a captured variable or a local variable. A dictionary's entries are included because they
            // are often an object's attributes.
            (_, path) if !path.starts_with('[') || path.starts_with("['") || path.starts_with("[\"") => {
                Ease::ByProgrammer
            }
            _ => Ease::InContainer,
        }
    }

    fn build_cut(&self, edge: u32, ends_it: bool) -> Cut {
        let serial = |node: u32| self.graph.nodes[node as usize].serial;
        let Edge { from, to, .. } = self.graph.edges[edge as usize];
        let leads_back = match (serial(from), serial(to)) {
            (Some(from), Some(to)) => from > to,
            // Programs register owners. The scan finds all other values through the owners, so they are owned. A reference from
            // such an unregistered value to a registered one therefore leads back to an owner.
            (None, Some(_)) => true,
            _ => false,
        };
        Cut { edge, ends_it, leads_back }
    }
}
