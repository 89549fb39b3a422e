//! Finds the cycles in a graph, groups those with the same types and fields, and measures the first one of each group.

use super::components::{Components, Members};
use super::cuts::{self, Field, field_of};
use super::path_search::PathSearch;
use super::storages::{Storages, Sum};
use super::{Bytes, Cycle, Findings, HandleGroup, Proof};
use crate::graph::{Graph, Reachability};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::cmp::Reverse;

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
        let leads = graph.leads_to_memory();
        let is_cycle = find_cyclic_components(graph, &components);
        let cyclic = (0..components.count).filter(|&number| is_cycle[number as usize]);
        let (leading, others): (Vec<u32>, Vec<u32>) =
            cyclic.partition(|&number| leads[members.nodes_of(number)[0] as usize]);
        let storages = Storages::of(graph);
        let mut finder = Finder {
            graph,
            components: &components,
            members: &members,
            search: PathSearch::new(graph),
            sum: Sum::new(graph, &storages),
        };
        let groups = finder.group_cycles(&leading);
        let (cycles, not_measured) = finder.measure_groups(&groups);

        let unreachable = |&node: &u32| graph.nodes[node as usize].held == Reachability::Unreachable;
        let in_cycles = leading.iter().chain(&others).flat_map(|&number| members.nodes_of(number)).copied();
        finder.sum_reached(in_cycles.filter(unreachable), |_| {});
        let leaked = finder.sum.lost();
        finder.sum.begin();
        (0..graph.nodes.len() as u32).filter(unreachable).for_each(|node| finder.sum.add(node));
        Self {
            cycles,
            leaked,
            unreachable_beside_cycles: finder.sum.lost().without(leaked),
            unexplained: finder.group_unexplained(),
            without_memory: others.len() as u64,
            not_measured,
        }
    }
}

/// A graph with its components, and what each search and each sum over them reuses.
struct Finder<'a> {
    graph: &'a Graph,
    components: &'a Components,
    members: &'a Members,
    search: PathSearch<'a>,
    sum: Sum<'a>,
}

impl Finder<'_> {
    fn component(&self, node: u32) -> u32 {
        self.components.of_node[node as usize]
    }

    /// Sums the memory of all values that can be reached from `starts`, and calls `each` with every one of them.
    fn sum_reached(&mut self, starts: impl IntoIterator<Item = u32>, mut each: impl FnMut(u32)) {
        self.sum.begin();
        let sum = &mut self.sum;
        self.search.visit(
            starts,
            |_| true,
            |node| {
                sum.add(node);
                each(node);
                true
            },
        );
    }

    /// Groups cycles, given by their components. Cycles that lead to other cycles come first, because they hold the
    /// most memory.
    fn group_cycles(&mut self, cycles: &[u32]) -> Vec<Group> {
        let graph = self.graph;
        let weakly = find_weakly_reached(graph, &mut self.search);
        let mut places = HashMap::new();
        let mut groups = Vec::<Group>::new();
        for &number in cycles.iter().rev() {
            let nodes = self.members.nodes_of(number);
            let proof = find_proof(graph, nodes, &weakly);
            let mut fields: Vec<Field> = nodes
                .iter()
                .flat_map(|&node| graph.edges_of(node))
                .filter(|&edge| self.component(graph.edges[edge].to) == number)
                .map(|edge| field_of(graph, edge))
                .collect();
            fields.sort_unstable();
            let place = *places.entry((proof, fields)).or_insert_with(|| {
                groups.push(Group { proof, components: Vec::new() });
                groups.len() - 1
            });
            groups[place].components.push(number);
        }
        groups
    }

    /// Returns the first cycle of each group, worst first, and the number of cycles that were not measured.
    fn measure_groups(&mut self, groups: &[Group]) -> (Vec<Cycle>, u64) {
        let components = self.components;
        let holders = Holders::of(self.graph);
        let held_from_outside = count_pointers_from_outside(self.graph, components);
        let place_of: HashMap<u32, u32> = groups
            .iter()
            .zip(0..)
            .flat_map(|(group, place)| group.components.iter().map(move |&number| (number, place)))
            .collect();
        // For each group, other groups that lead to it.
        let mut behind: Vec<Vec<u32>> = vec![Vec::new(); groups.len()];
        let mut measured: Vec<(u32, Cycle)> = Vec::new();
        let mut not_measured = 0;
        for (place, group) in (0..).zip(groups) {
            if self.search.steps > MAX_STEPS {
                not_measured += group.components.len() as u64;
                continue;
            }
            let reach = |node: u32| {
                let number = components.of_node[node as usize];
                if let Some(&other) = place_of.get(&number).filter(|&&other| other != place) {
                    let behind = &mut behind[other as usize];
                    if behind.last() != Some(&place) && behind.len() < MAX_BEHIND {
                        behind.push(place);
                    }
                }
            };
            let outside_pointers = held_from_outside[group.components[0] as usize];
            let cycle = self.measure_group(group, &holders, reach);
            measured.push((place, Cycle { outside_pointers, ..cycle }));
        }
        measured.sort_by_key(|(_, cycle)| {
            let bytes = cycle.all_leaked.plus(cycle.pinned);
            (cycle.proof, Reverse((bytes.known_bytes, bytes.storages, cycle.instances)), cycle.nodes[0])
        });
        let sorted: HashMap<u32, u32> =
            measured.iter().zip(0..).map(|((place, _), at)| (*place, at)).collect();
        let cycles = measured.into_iter().map(|(place, cycle)| {
            let others = behind[place as usize].iter().filter_map(|other| sorted.get(other).copied());
            let mut held_by_cycles: Vec<u32> = others.collect();
            held_by_cycles.sort_unstable();
            held_by_cycles.dedup();
            Cycle { held_by_cycles, ..cycle }
        });
        (cycles.collect(), not_measured)
    }

    /// Measures the first cycle of a group, and calls `reach` with every value that it leads to. The result lacks what
    /// depends on other cycles.
    fn measure_group(&mut self, group: &Group, holders: &Holders, reach: impl FnMut(u32)) -> Cycle {
        let (graph, members, components) = (self.graph, self.members, self.components);
        let number = group.components[0];
        let nodes = members.nodes_of(number);
        let is_member = |node: u32| components.of_node[node as usize] == number;
        let inside = |edge: usize| is_member(graph.edges[edge].from) && is_member(graph.edges[edge].to);
        let cycle = cuts::Cycle::new(graph, nodes, &inside);
        let closed_path = cycle.find_closed_path(&mut self.search, &HashSet::new()).unwrap_or_default();
        let (cuts, cuts_are_enough) = cycle.find_cuts(&closed_path, &mut self.search);
        let is_root = |node: u32| graph.nodes[node as usize].root;
        let to_memory = self.search.find_shortest_path(nodes.iter().copied(), |_| true, is_root);

        self.sum_reached(nodes.iter().copied(), reach);
        let (lost, live) = (self.sum.lost(), self.sum.live());
        let is_held = group.proof == Proof::HeldOutside;
        let (leaked, pinned) = if is_held { (Bytes::default(), live.plus(lost)) } else { (lost, live) };
        let all_leaked = if group.components.len() == 1 {
            leaked
        } else {
            self.sum_reached(
                group.components.iter().flat_map(|&number| members.nodes_of(number)).copied(),
                |_| {},
            );
            if is_held { Bytes::default() } else { self.sum.lost() }
        };
        self.sum.begin();
        holders.for_each_freed_with(graph, nodes, |node| self.sum.add(node));
        Cycle {
            proof: group.proof,
            instances: group.components.len() as u64,
            nodes: nodes.to_vec(),
            closed_path,
            memory_node: to_memory.as_ref().map(|&(node, _)| node),
            to_memory_steps: to_memory.as_ref().map_or(0, |(_, path)| path.len()),
            to_memory: to_memory.map(|(_, path)| keep_ends(path)).unwrap_or_default(),
            leaked,
            exclusive: self.sum.freed(),
            pinned,
            all_leaked,
            outside_pointers: 0,
            weak_outside: nodes.iter().map(|&node| graph.nodes[node as usize].weak_outside).sum(),
            held_by_cycles: Vec::new(),
            cuts,
            cuts_are_enough,
        }
    }

    /// Groups unexplained handles by where they were created, those with the most device memory first.
    fn group_unexplained(&mut self) -> Vec<HandleGroup> {
        let graph = self.graph;
        let mut places = HashMap::new();
        let mut groups: Vec<(HandleGroup, Vec<u32>)> = Vec::new();
        for each in &graph.unexplained {
            let key = (cuts::type_label(graph, each.node), &each.site, &each.scope);
            let place = *places.entry(key).or_insert_with(|| {
                let none = HandleGroup {
                    node: each.node,
                    label: graph.label(each.node).into(),
                    site: each.site.clone(),
                    scope: each.scope.clone(),
                    handles: 0,
                    values: 0,
                    ended_roots: 0,
                    held: Bytes::default(),
                };
                groups.push((none, Vec::new()));
                groups.len() - 1
            });
            let (group, nodes) = &mut groups[place];
            group.handles += each.handles;
            group.values += 1;
            group.ended_roots = group.ended_roots.max(each.ended_roots);
            nodes.push(each.node);
        }
        let held = |(group, nodes): (HandleGroup, Vec<u32>)| {
            self.sum_reached(nodes, |_| {});
            HandleGroup { held: self.sum.lost().plus(self.sum.live()), ..group }
        };
        let mut groups: Vec<HandleGroup> = groups.into_iter().map(held).collect();
        groups.sort_by_key(|group| Reverse((group.held.known_bytes, group.held.storages, group.handles)));
        groups
    }
}

/// Returns, for each component, whether it is a cycle.
pub(super) fn find_cyclic_components(graph: &Graph, components: &Components) -> Vec<bool> {
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
