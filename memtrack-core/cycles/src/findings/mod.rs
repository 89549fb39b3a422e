//! The cycles in a graph, worst first, with the memory that each holds and the references to make weak.

pub(crate) mod components;
mod cuts;
mod find;
mod path_search;
mod storages;
#[cfg(test)]
mod tests;

use crate::graph::Graph;
use components::Components;
use cuts::{Field, field_of};
use find::find_cyclic_components;
use foldhash::HashSet;
use serde::Serialize;
use std::hash::BuildHasher;
pub use storages::Bytes;

/// The certainty that the values in a cycle can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// The program can no longer reach the values, as proved by counting the pointers to them. Their memory is lost until
    /// the program ends.
    Proved,
    /// The values are held only by each other, but there are weak handles through which the program might still reach
    /// them.
    WeakHandles,
    /// The values are still held from outside. This is not yet a leak, but the cycle will keep its memory allocated after
    /// the outside references are dropped.
    HeldOutside,
}

memtrack_model::serialize_as!(Proof => &'static str: |proof| match proof {
    Proof::Proved => "unreachable",
    Proof::WeakHandles => "unreachable_but_weak_handles",
    Proof::HeldOutside => "held_from_outside",
});

/// A reference that breaks a cycle if it is made weak. This is only a suggestion, because only the program's author
/// knows which of two values owns the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cut {
    /// The edge, as an index into the graph's edges.
    #[serde(skip)]
    pub edge: u32,
    /// Whether removing this reference alone breaks the cycle.
    #[serde(rename = "ends_the_cycle")]
    pub ends_it: bool,
    /// Whether the reference leads from a newer value to an older one, or from an unregistered value to a registered
    /// one, as a reference back to an owner does.
    pub leads_back: bool,
}

/// A cycle, which is a set of values that all lead to each other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Cycle {
    /// The certainty that the cycle is unreachable.
    pub proof: Proof,
    /// The number of cycles with the same types and fields. All the other fields describe only the first of these
    /// cycles, except [`all_leaked`](Self::all_leaked).
    pub instances: u64,
    /// The values in the cycle, as indices into the graph's nodes.
    pub nodes: Vec<u32>,
    /// A short closed path through one of its values, as indices into the graph's edges.
    pub closed_path: Vec<u32>,
    /// The shortest path from a value in the cycle to device memory. It is empty if that value holds device memory
    /// itself. If the path is long, only its first and last steps are included;
    /// [`to_memory_steps`](Self::to_memory_steps) is the total number of steps.
    pub to_memory: Vec<u32>,
    /// The total number of steps in the path to device memory.
    pub to_memory_steps: usize,
    /// The value with device memory at the end of the path to device memory, as an index into the graph's nodes.
    pub memory_node: Option<u32>,
    /// Device memory that the cycle leads to and that cannot be used from outside. It stays allocated until the cycle
    /// is broken.
    pub leaked: Bytes,
    /// The part of [`leaked`](Self::leaked) that would be freed if only this cycle were gone.
    pub exclusive: Bytes,
    /// Device memory that the cycle leads to and that is also held from outside. It will stay allocated after the
    /// outside references are dropped.
    pub pinned: Bytes,
    /// Device memory leaked by all instances together, with each storage counted once.
    pub all_leaked: Bytes,
    /// The number of strong pointers into the cycle from outside (for [`Proof::HeldOutside`]).
    pub outside_pointers: u64,
    /// The number of weak pointers to its values from outside.
    pub weak_outside: u64,
    /// Other cycles that lead to this one, as indices into [`Findings::cycles`]. They must be broken too.
    pub held_by_cycles: Vec<u32>,
    /// The references to make weak. If the first one [breaks the cycle](Cut::ends_it), so does each of the others, and
    /// any one of them is enough. Otherwise, all of them are needed.
    pub cuts: Vec<Cut>,
    /// Whether making the [suggested](Self::suggested_cuts) references weak breaks every cycle among these values. This
    /// is false if more references would have to be made weak than are listed.
    pub cuts_are_enough: bool,
}

impl Cycle {
    /// Returns the suggested cuts: only the best one, or all of them if one is not enough.
    pub fn suggested_cuts(&self) -> &[Cut] {
        match self.cuts.first() {
            Some(cut) if cut.ends_it => &self.cuts[..1],
            _ => &self.cuts,
        }
    }

    /// Returns all references in the cycle that the suggestion makes weak, including other references through the same
    /// fields, as indices into the graph's edges.
    pub fn edges_to_make_weak(&self, graph: &Graph) -> Vec<u32> {
        let fields: HashSet<Field> =
            self.suggested_cuts().iter().map(|cut| field_of(graph, cut.edge as usize)).collect();
        let members: HashSet<u32> = self.nodes.iter().copied().collect();
        let edges = self.nodes.iter().flat_map(|&node| graph.edges_of(node));
        let is_suggested = |&edge: &usize| {
            members.contains(&graph.edges[edge].to) && fields.contains(&field_of(graph, edge))
        };
        edges.filter(is_suggested).map(|edge| edge as u32).collect()
    }
}

/// Handles to values of one type, created at one place, that the scan did not find because they were forgotten or are
/// stored where a scan cannot see them, such as in a growing static. Such handles are not a cycle, and not necessarily
/// a leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HandleGroup {
    /// The first value that the handles keep alive, as an index into the graph's nodes.
    #[serde(skip)]
    pub node: u32,
    /// The label of the first value that the handles keep alive.
    pub label: String,
    /// The place where the handles were created, as `file:line:column`.
    pub site: String,
    /// The root scope in which the handles were created; null if there was none.
    pub scope: Option<String>,
    /// The number of unexplained handles.
    pub handles: u64,
    /// The number of values that the handles keep alive.
    pub values: u64,
    /// The number of root scopes that have ended since the oldest of the handles was created.
    pub ended_roots: u64,
    /// The device memory that the handles lead to, with each storage counted once.
    pub held: Bytes,
}

/// The cycles and unexplained handles found in a graph.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Findings {
    /// Cycles from which device memory can be reached, ordered by proof (proved ones first) and then by bytes (largest
    /// first).
    pub cycles: Vec<Cycle>,
    /// All unreachable device memory to which a cycle leads, with each storage counted once.
    pub leaked: Bytes,
    /// Unreachable device memory to which no cycle leads. It is garbage that other garbage refers to.
    pub unreachable_beside_cycles: Bytes,
    /// Handles that the scan did not find, grouped by where they were created. Those with the most device memory come
    /// first.
    pub unexplained: Vec<HandleGroup>,
    /// The number of cycles that lead to no device memory. These are not listed.
    pub without_memory: u64,
    /// The number of cycles that were not measured because there are too many.
    pub not_measured: u64,
}

impl Findings {
    /// Finds the cycles in `part`, the part of a graph that leads to device memory, and counts the other cycles in
    /// `whole`.
    pub fn of_subgraph(part: &Graph, whole: &Graph) -> Self {
        let cycles = |graph| {
            let components = Components::of(graph, |_| true);
            let is_cycle = find_cyclic_components(graph, &components);
            is_cycle.iter().filter(|&&is_cycle| is_cycle).count()
        };
        let without_memory =
            if part.nodes.len() == whole.nodes.len() { 0 } else { cycles(whole) - cycles(part) };
        let findings = Self::of(part);
        Self { without_memory: findings.without_memory + without_memory as u64, ..findings }
    }

    /// Returns a hash of a cycle's types and fields. It is the same for all cycles of one kind, in any graph.
    pub fn kind_of(&self, graph: &Graph, cycle: &Cycle) -> u64 {
        let members: HashSet<u32> = cycle.nodes.iter().copied().collect();
        let edges = cycle.nodes.iter().flat_map(|&node| graph.edges_of(node));
        let inside = edges.filter(|&edge| members.contains(&graph.edges[edge].to));
        let mut fields: Vec<Field> = inside.map(|edge| field_of(graph, edge)).collect();
        fields.sort_unstable();
        foldhash::fast::FixedState::default().hash_one(&fields)
    }

    /// Returns the number of cycles that nothing outside holds, counting every instance.
    pub fn leaks(&self) -> u64 {
        let lost = self.cycles.iter().filter(|cycle| cycle.proof != Proof::HeldOutside);
        lost.map(|cycle| cycle.instances).sum()
    }
}
