//! Finds the cycles in a graph, worst first, with the memory that each holds and the references to make weak.

pub(crate) mod components;
mod cuts;
mod path_search;
mod storages;
#[cfg(test)]
mod tests;

use crate::graph::{Graph, Reachability};
use crate::keep::leads_to_memory;
use components::Components;
use cuts::{Field, field_of};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use path_search::PathSearch;
use std::hash::BuildHasher;
use storages::{Storages, Sum};

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

/// An amount of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Bytes {
    /// The total of the known sizes, with each storage counted once.
    pub known_bytes: u64,
    /// The number of storages.
    pub storages: u64,
    /// The number of storages whose size is unknown.
    pub unknown: u64,
}

/// A reference that breaks a cycle if it is made weak. This is only a suggestion, because only the program's author
/// knows which of two values owns the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The edge, as an index into the graph's edges.
    pub edge: u32,
    /// Whether removing this reference alone breaks the cycle.
    pub ends_it: bool,
    /// Whether it leads from a newer value to an older one, as a reference back to a parent or an owner does, or from
    /// an unregistered value to a registered one.
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandleGroup {
    /// The first handle's index in [`Graph::unexplained`](crate::Graph::unexplained), which contains the site and the
    /// scope that all of the handles share.
    pub first: usize,
    /// The number of handles.
    pub handles: u64,
    /// The number of values that the handles keep alive.
    pub values: u64,
    /// The number of root scopes that have ended since the oldest of the handles was created.
    pub ended_roots: u64,
    /// Device memory to which the handles lead, with each storage counted once.
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

/// The maximum number of edges followed to measure all cycles together. Without this limit, a graph of many cycles that
/// lead to each other would take time proportional to the square of its size.
const MAX_STEPS: u64 = 200_000_000;
/// The maximum number of other cycles listed as leading to a cycle.
const MAX_BEHIND: usize = 16;

/// Cycles with the same types and fields.
struct Group {
    proof: Proof,
    /// The components of these cycles. The first one is reported.
    components: Vec<u32>,
}

impl Findings {
    /// Finds the cycles and unexplained handles in a graph.
    pub fn of(graph: &Graph) -> Self {
        let components = Components::of(graph, |_| true);
        let members = components.members();
        let component = |node: u32| components.of_node[node as usize];
        let within = |edge: usize| component(graph.edges[edge].from) == component(graph.edges[edge].to);
        let leads = leads_to_memory(graph);
        let is_cycle = find_cyclic_components(graph, &components);
        let cyclic = || (0..components.count).filter(|&number| is_cycle[number as usize]);
        let leads_on = |number: &u32| leads[members.nodes_of(*number)[0] as usize];
        let mut search = PathSearch::new(graph);
        let weakly = find_weakly_reached(graph, &mut search);

        // Start with the cycles that lead to other cycles, because they hold the most memory.
        let mut places = HashMap::new();
        let mut groups = Vec::<Group>::new();
        for number in cyclic().filter(leads_on).collect::<Vec<_>>().into_iter().rev() {
            let nodes = members.nodes_of(number);
            let proof = find_proof(graph, nodes, &weakly);
            let mut fields: Vec<Field> = nodes
                .iter()
                .flat_map(|&node| graph.edges_of(node))
                .filter(|&edge| within(edge))
                .map(|edge| field_of(graph, edge))
                .collect();
            fields.sort_unstable();
            let place = *places.entry((proof, fields)).or_insert_with(|| {
                groups.push(Group { proof, components: Vec::new() });
                groups.len() - 1
            });
            groups[place].components.push(number);
        }

        let storages = Storages::of(graph);
        let mut sum = Sum::new(graph, &storages);
        let holders = Holders::of(graph);
        let held_from_outside = count_pointers_from_outside(graph, &components);
        let mut findings = Self {
            without_memory: cyclic().filter(|number| !leads_on(number)).count() as u64,
            ..Self::default()
        };
        let first_of: HashMap<u32, u32> = groups
            .iter()
            .zip(0..)
            .flat_map(|(group, place)| group.components.iter().map(move |&number| (number, place)))
            .collect();
        let mut leads_to: Vec<Vec<u32>> = vec![Vec::new(); groups.len()];
        for (place, group) in (0..).zip(&groups) {
            if search.steps > MAX_STEPS {
                findings.not_measured += group.components.len() as u64;
                continue;
            }
            let nodes = members.nodes_of(group.components[0]);
            let inside =
                |edge: usize| within(edge) && component(graph.edges[edge].from) == group.components[0];
            let cycle = cuts::Cycle::new(graph, nodes, &inside);
            let closed_path = cycle.find_closed_path(&mut search, &HashSet::new()).unwrap_or_default();
            let (cuts, cuts_are_enough) = cycle.find_cuts(&closed_path, &mut search);
            let to_memory = search.find_shortest_path(
                nodes.iter().copied(),
                |_| true,
                |node| graph.nodes[node as usize].root,
            );

            sum.begin();
            search.visit(
                nodes.iter().copied(),
                |_| true,
                |node| {
                    sum.add(node);
                    if let Some(&other) = first_of.get(&component(node)).filter(|&&other| other != place) {
                        let behind = &mut leads_to[other as usize];
                        if behind.last() != Some(&place) && behind.len() < MAX_BEHIND {
                            behind.push(place);
                        }
                    }
                    true
                },
            );
            let (leaked, pinned) = match group.proof {
                Proof::HeldOutside => (Bytes::default(), sum.live().plus(sum.lost())),
                _ => (sum.lost(), sum.live()),
            };
            let all_leaked = if group.components.len() == 1 {
                leaked
            } else {
                sum.begin();
                let all = group.components.iter().flat_map(|&number| members.nodes_of(number)).copied();
                search.visit(
                    all,
                    |_| true,
                    |node| {
                        sum.add(node);
                        true
                    },
                );
                if group.proof == Proof::HeldOutside { Bytes::default() } else { sum.lost() }
            };
            sum.begin();
            holders.for_each_freed_with(graph, nodes, |node| sum.add(node));
            findings.cycles.push(Cycle {
                proof: group.proof,
                instances: group.components.len() as u64,
                nodes: nodes.to_vec(),
                closed_path,
                memory_node: to_memory.as_ref().map(|&(node, _)| node),
                to_memory_steps: to_memory.as_ref().map_or(0, |(_, path)| path.len()),
                to_memory: to_memory.map(|(_, path)| keep_ends(path)).unwrap_or_default(),
                leaked,
                exclusive: sum.freed(),
                pinned,
                all_leaked,
                outside_pointers: held_from_outside[group.components[0] as usize],
                weak_outside: nodes.iter().map(|&node| graph.nodes[node as usize].weak_outside).sum(),
                held_by_cycles: vec![place],
                cuts,
                cuts_are_enough,
            });
        }
        // Until the sort is done, `held_by_cycles` contains only the index of the cycle's own group.
        findings.cycles.sort_by_key(|cycle| {
            let bytes = cycle.all_leaked.plus(cycle.pinned);
            (
                cycle.proof,
                std::cmp::Reverse((bytes.known_bytes, bytes.storages, cycle.instances)),
                cycle.nodes[0],
            )
        });
        let now: HashMap<u32, u32> =
            findings.cycles.iter().zip(0..).map(|(cycle, now)| (cycle.held_by_cycles[0], now)).collect();
        for cycle in &mut findings.cycles {
            let behind = std::mem::take(&mut leads_to[cycle.held_by_cycles[0] as usize]);
            cycle.held_by_cycles = behind.iter().filter_map(|place| now.get(place).copied()).collect();
            cycle.held_by_cycles.sort_unstable();
            cycle.held_by_cycles.dedup();
        }

        sum.begin();
        let unreachable = |node: u32| graph.nodes[node as usize].held == Reachability::Unreachable;
        let all =
            cyclic().flat_map(|number| members.nodes_of(number)).copied().filter(|&node| unreachable(node));
        search.visit(
            all,
            |_| true,
            |node| {
                sum.add(node);
                true
            },
        );
        findings.leaked = sum.lost();
        sum.begin();
        (0..graph.nodes.len() as u32).filter(|&node| unreachable(node)).for_each(|node| sum.add(node));
        findings.unreachable_beside_cycles = sum.lost().without(findings.leaked);
        findings.unexplained = group_unexplained(graph, &mut search, &mut sum);
        findings
    }

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

/// Groups unexplained handles by where they were created.
fn group_unexplained(graph: &Graph, search: &mut PathSearch<'_>, sum: &mut Sum<'_>) -> Vec<HandleGroup> {
    let mut places = HashMap::new();
    let mut sites: Vec<(HandleGroup, Vec<u32>)> = Vec::new();
    for (at, each) in graph.unexplained.iter().enumerate() {
        let key = (cuts::type_label(graph, each.node), &each.site, &each.scope);
        let place = *places.entry(key).or_insert_with(|| {
            let none =
                HandleGroup { first: at, handles: 0, values: 0, ended_roots: 0, held: Bytes::default() };
            sites.push((none, Vec::new()));
            sites.len() - 1
        });
        let (handles, nodes) = &mut sites[place];
        handles.handles += each.handles;
        handles.values += 1;
        handles.ended_roots = handles.ended_roots.max(each.ended_roots);
        nodes.push(each.node);
    }
    let held = |(handles, nodes): (HandleGroup, Vec<u32>)| {
        sum.begin();
        search.visit(
            nodes,
            |_| true,
            |node| {
                sum.add(node);
                true
            },
        );
        HandleGroup { held: sum.lost().plus(sum.live()), ..handles }
    };
    let mut sites: Vec<HandleGroup> = sites.into_iter().map(held).collect();
    sites.sort_by_key(|site| std::cmp::Reverse((site.held.known_bytes, site.held.storages, site.handles)));
    sites
}

/// Returns, for each component, whether it is a cycle.
fn find_cyclic_components(graph: &Graph, components: &Components) -> Vec<bool> {
    let mut is_cycle = vec![false; components.count as usize];
    for edge in &graph.edges {
        let from = components.of_node[edge.from as usize];
        // A component of one node is a cycle if the node has an edge to itself; a larger component always is one.
        is_cycle[from as usize] |= from == components.of_node[edge.to as usize];
    }
    is_cycle
}

/// Returns, for each node, whether it can be reached from a value with weak pointers from outside. Upgrading such a
/// pointer makes the node usable.
fn find_weakly_reached(graph: &Graph, search: &mut PathSearch<'_>) -> Vec<bool> {
    let mut reached = vec![false; graph.nodes.len()];
    let starts = (0..graph.nodes.len() as u32).filter(|&node| graph.nodes[node as usize].weak_outside > 0);
    search.visit(
        starts,
        |_| true,
        |node| {
            reached[node as usize] = true;
            true
        },
    );
    reached
}

fn find_proof(graph: &Graph, nodes: &[u32], weakly: &[bool]) -> Proof {
    if nodes.iter().any(|&node| graph.nodes[node as usize].held != Reachability::Unreachable) {
        Proof::HeldOutside
    } else if nodes.iter().any(|&node| weakly[node as usize]) {
        Proof::WeakHandles
    } else {
        Proof::Proved
    }
}

/// Removes the middle of a long path, because many cycles may have long paths that mostly coincide.
fn keep_ends(mut path: Vec<u32>) -> Vec<u32> {
    /// The maximum number of steps kept at each end.
    const MAX_KEPT: usize = 32;
    if path.len() > 2 * MAX_KEPT {
        path.drain(MAX_KEPT..path.len() - MAX_KEPT);
        path.shrink_to_fit();
    }
    path
}

/// Returns, for each component, the number of strong pointers into it from reachable values or from outside the graph.
fn count_pointers_from_outside(graph: &Graph, components: &Components) -> Vec<u64> {
    let component = |node: u32| components.of_node[node as usize] as usize;
    let mut held = vec![0; components.count as usize];
    for (node, number) in graph.nodes.iter().zip(&components.of_node) {
        if let Reachability::Outside(handles) = node.held {
            held[*number as usize] += handles;
        }
    }
    for edge in &graph.edges {
        let is_live = graph.nodes[edge.from as usize].held != Reachability::Unreachable;
        if is_live && component(edge.from) != component(edge.to) {
            held[component(edge.to)] += 1;
        }
    }
    held
}

/// The number of strong pointers to each node.
struct Holders {
    strong: Vec<u64>,
}

impl Holders {
    fn of(graph: &Graph) -> Self {
        let outside = |held| if let Reachability::Outside(handles) = held { handles } else { 0 };
        let mut strong: Vec<u64> = graph.nodes.iter().map(|node| outside(node.held)).collect();
        graph.edges.iter().for_each(|edge| strong[edge.to as usize] += 1);
        Self { strong }
    }

    /// Calls `each` for every node in `nodes`, and for every node that would be dropped with them because its last
    /// pointer would be gone. The values of other cycles are not dropped, because they hold each other.
    fn for_each_freed_with(&self, graph: &Graph, nodes: &[u32], mut each: impl FnMut(u32)) {
        let mut freed: HashSet<u32> = nodes.iter().copied().collect();
        let mut gone = HashMap::<u32, u64>::new();
        let mut left = nodes.to_vec();
        while let Some(node) = left.pop() {
            each(node);
            for edge in graph.edges_of(node) {
                let to = graph.edges[edge].to;
                let gone = gone.entry(to).or_default();
                *gone += 1;
                if *gone == self.strong[to as usize] && freed.insert(to) {
                    left.push(to);
                }
            }
        }
    }
}
