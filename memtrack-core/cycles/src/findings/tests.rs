//! Tests of the findings in small graphs that were checked by hand.

use super::*;
use crate::graph::{Edge, Origin};
use crate::testing::parse_graph;
use crate::words;

fn find_in_rust_graph(lines: &str) -> (Graph, Findings) {
    let graph = parse_graph(Origin::Rust, lines);
    let findings = Findings::of(&graph);
    (graph, findings)
}

fn known_bytes(bytes: Bytes) -> u64 {
    assert_eq!(bytes.unknown, 0);
    bytes.known_bytes
}

fn suggested_fields(graph: &Graph, cycle: &Cycle) -> Vec<String> {
    cycle.suggested_cuts().iter().map(|cut| words::field(graph, cut)).collect()
}

#[test]
fn value_that_refers_to_itself_is_cycle() {
    let (graph, findings) = find_in_rust_graph("Node .me Node\n Node = 10");
    let [cycle] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert_eq!((cycle.proof, cycle.nodes.len(), known_bytes(cycle.leaked)), (Proof::Proved, 1, 10));
    assert_eq!(suggested_fields(&graph, cycle), ["Node .me → Node"]);
    assert_eq!(words::path_text(&graph, &cycle.closed_path), "Node .me → Node");
}

#[test]
fn reference_of_younger_value_is_made_weak() {
    let (graph, findings) =
        find_in_rust_graph("Trainer .hooks[0] Hook\n Hook .owner Trainer\n Hook .data Buffer\n Buffer = 64");
    let [cycle] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert_eq!(words::path_text(&graph, &cycle.closed_path), "Trainer .hooks[0] → Hook .owner → Trainer");
    assert_eq!(suggested_fields(&graph, cycle), ["Hook .owner → Trainer"]);
    assert!(cycle.cuts[0].leads_back && cycle.cuts[0].ends_it);
    assert_eq!(words::path_text(&graph, &cycle.to_memory), "Hook .data → Buffer");
    assert_eq!(
        (known_bytes(cycle.leaked), known_bytes(cycle.exclusive), known_bytes(findings.leaked)),
        (64, 64, 64)
    );
}

#[test]
fn field_of_many_children_is_suggested_once() {
    let (graph, findings) = find_in_rust_graph(
        "Tree .children[0] Leaf#1\n Tree .children[1] Leaf#2\n Tree .children[2] Leaf#3
         Leaf#1 .parent Tree\n Leaf#2 .parent Tree\n Leaf#3 .parent Tree\n Leaf#3 = 5",
    );
    let [cycle] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert_eq!(cycle.nodes.len(), 4);
    assert_eq!(suggested_fields(&graph, cycle), ["Leaf .parent → Tree"]);
}

#[test]
fn all_needed_fields_are_named_if_no_single_field_is_enough() {
    let (graph, findings) = find_in_rust_graph(
        "A .left B\n B .back A\n A .right C\n C .home A\n B .across C\n C .across B\n A = 1",
    );
    let [cycle] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert!(cycle.cuts.iter().all(|cut| !cut.ends_it));
    // No closed path remains without the fields of the cuts.
    let cut: HashSet<Field> = cycle.cuts.iter().map(|cut| field_of(&graph, cut.edge as usize)).collect();
    let components = Components::of(&graph, |edge| !cut.contains(&field_of(&graph, edge)));
    assert_eq!(components.count, 3, "{:?}", suggested_fields(&graph, cycle));
}

#[test]
fn suggestion_is_marked_as_insufficient_if_too_many_fields_are_needed() {
    let nodes: Vec<String> = (0..8).map(|node| format!("T{node}")).collect();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)));
    let mut lines: String =
        pairs.filter(|(from, to)| from != to).map(|(from, to)| format!("{from} .to{to} {to}\n")).collect();
    lines += "T0 = 1";
    let (graph, findings) = find_in_rust_graph(&lines);
    let [cycle] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert!(!cycle.cuts_are_enough && !cycle.cuts.is_empty());
    assert!(words::make_weak(&graph, cycle).last().unwrap().starts_with("and more"));
}

#[test]
fn closing_reference_is_made_weak_if_ages_are_unknown() {
    let mut graph = parse_graph(Origin::Rust, "Model .layers[0] Layer\n Layer .parent Model\n Layer = 1");
    graph.nodes[1].serial = None;
    let findings = Findings::of(&graph);
    assert_eq!(suggested_fields(&graph, &findings.cycles[0]), ["Layer .parent → Model"]);
    graph.nodes[0].serial = None;
    let findings = Findings::of(&graph);
    assert_eq!(suggested_fields(&graph, &findings.cycles[0]), ["Layer .parent → Model"]);
}

#[test]
fn output_for_long_paths_is_bounded() {
    let count = 1000;
    let mut lines: String =
        (0..count).map(|n| format!("A{n} .b B{n}\n B{n} .a A{n}\n A{n} .next A{}\n", n + 1)).collect();
    lines += &format!("A{count} = 1");
    let (graph, findings) = find_in_rust_graph(&lines);
    assert_eq!(findings.cycles.len(), count);
    let longest = findings.cycles.iter().map(|cycle| cycle.to_memory_steps).max();
    assert_eq!(longest, Some(count));
    let mut written = Vec::new();
    crate::json::write(&graph, &findings, &mut written).unwrap();
    assert!(written.len() < 20_000 * count, "{}", written.len());
    let path = findings.cycles.iter().find(|cycle| cycle.to_memory_steps == count).unwrap();
    let text = words::long_path_text(&graph, &path.to_memory, count);
    assert!(text.contains("… 984 more …") && text.ends_with("A1000"), "{text}");
}

#[test]
fn memory_shared_by_two_cycles_is_exclusive_to_neither() {
    let (_, findings) =
        find_in_rust_graph("A .me A\n A .shared S\n A .own X\n B .you B\n B .shared S\n S = 100\n X = 7");
    let [first, second] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert_eq!((known_bytes(first.leaked), known_bytes(first.exclusive)), (107, 7));
    assert_eq!((known_bytes(second.leaked), known_bytes(second.exclusive)), (100, 0));
    assert_eq!(known_bytes(findings.leaked), 107, "each storage once");
}

#[test]
fn storage_held_by_two_values_is_counted_once_and_freed_with_last() {
    let (_, findings) = find_in_rust_graph("A .me A\n A .x X\n X = 50 @1\n B .me B\n B .y Y\n Y = 50 @1");
    assert_eq!(known_bytes(findings.leaked), 50);
    assert_eq!(findings.leaked.storages, 1);
    assert!(
        findings
            .cycles
            .iter()
            .all(|cycle| known_bytes(cycle.leaked) == 50 && known_bytes(cycle.exclusive) == 0)
    );
}

#[test]
fn cycle_behind_another_is_reported_as_such() {
    let (graph, findings) = find_in_rust_graph("A .me A\n A .next B\n B .me B\n B = 9");
    let place =
        |label: &str| findings.cycles.iter().position(|cycle| graph.label(cycle.nodes[0]) == label).unwrap();
    let (a, b) = (&findings.cycles[place("A")], &findings.cycles[place("B")]);
    assert_eq!((&a.held_by_cycles[..], &b.held_by_cycles[..]), (&[][..], &[place("A") as u32][..]));
    assert_eq!((known_bytes(a.leaked), known_bytes(a.exclusive)), (9, 0), "B holds itself");
    assert_eq!((known_bytes(b.leaked), known_bytes(b.exclusive)), (9, 9));
}

#[test]
fn equal_cycles_are_one_finding_with_count() {
    let lines: String = (0..1000)
        .map(|n| {
            format!("Parent#{n} .children[{n}] Child#{n}\n Child#{n} .parent Parent#{n}\n Child#{n} = 3\n")
        })
        .collect();
    let (_, findings) = find_in_rust_graph(&lines);
    let [cycle] = &findings.cycles[..] else { panic!("{} findings", findings.cycles.len()) };
    assert_eq!((cycle.instances, known_bytes(cycle.leaked), known_bytes(cycle.all_leaked)), (1000, 3, 3000));
    assert_eq!((findings.leaks(), known_bytes(findings.leaked)), (1000, 3000));
}

#[test]
fn memory_in_use_is_not_leaked_and_future_leaks_are_pinned() {
    let (_, findings) =
        find_in_rust_graph("A .me A\n A held 2\n A = 4\n B .me B\n B .data D\n D held 1\n D = 8");
    let [pinning, held] = &findings.cycles[..] else { panic!("{findings:?}") };
    assert_eq!(
        (held.proof, held.outside_pointers, known_bytes(held.leaked), known_bytes(held.pinned)),
        (Proof::HeldOutside, 2, 0, 4)
    );
    assert_eq!(
        (pinning.proof, known_bytes(pinning.leaked), known_bytes(pinning.pinned)),
        (Proof::Proved, 0, 8)
    );
    assert_eq!((known_bytes(findings.leaked), findings.leaks()), (0, 1));
}

#[test]
fn weak_pointer_to_value_that_leads_to_cycle_reaches_cycle() {
    let (_, findings) = find_in_rust_graph("Head .next A\n Head weak 1\n A .me A\n A = 1\n B .me B\n B = 2");
    let proofs: Vec<Proof> = findings.cycles.iter().map(|cycle| cycle.proof).collect();
    assert_eq!(proofs, [Proof::Proved, Proof::WeakHandles]);
}

#[test]
fn cycles_without_device_memory_are_only_counted() {
    let (_, findings) = find_in_rust_graph("A .me A\n B = 3\n A .to C");
    assert!(findings.cycles.is_empty());
    assert_eq!(
        (
            findings.without_memory,
            known_bytes(findings.leaked),
            known_bytes(findings.unreachable_beside_cycles)
        ),
        (1, 0, 3)
    );
}

#[test]
fn unknown_sizes_are_not_added() {
    let (_, findings) = find_in_rust_graph("A .me A\n A = 3\n A .b B\n B = ?");
    assert_eq!(words::bytes(findings.leaked), "3 B and 1 device buffer of unknown size");
}

#[test]
fn large_ring_needs_no_stack_and_little_time() {
    let mut graph = parse_graph(Origin::Rust, "N .next N#1\n N#1 .next N\n N = 1");
    let label = graph.nodes[0].label;
    let path = graph.edges[0].path;
    for node in 2..300_000 {
        graph.nodes.push(crate::graph::Node { label, serial: None, ..graph.nodes[1].clone() });
        graph.edges.push(Edge { from: node, to: (node + 1) % 300_000, path });
    }
    graph.edges.retain(|edge| edge.from != 1);
    graph.edges.push(Edge { from: 1, to: 2, path });
    graph.sort();
    let findings = Findings::of(&graph);
    let [cycle] = &findings.cycles[..] else { panic!("{} findings", findings.cycles.len()) };
    assert_eq!((cycle.nodes.len(), cycle.closed_path.len()), (300_000, 300_000));
    assert!(words::path_text(&graph, &cycle.closed_path).len() < 1000);
}

/// Determines by brute force whether each node is on a cycle.
fn find_cyclic_by_brute_force(graph: &Graph) -> Vec<bool> {
    let count = graph.nodes.len();
    let mut reaches = vec![vec![false; count]; count];
    for edge in &graph.edges {
        reaches[edge.from as usize][edge.to as usize] = true;
    }
    for over in 0..count {
        for from in 0..count {
            for to in 0..count {
                reaches[from][to] |= reaches[from][over] && reaches[over][to];
            }
        }
    }
    (0..count).map(|node| reaches[node][node]).collect()
}

proptest::proptest! {
    #[test]
    fn all_cycles_of_any_graph_are_found(
        edges in proptest::collection::vec((0_u32..9, 0_u32..9), 0..24),
        memory in proptest::collection::vec(0_u32..9, 0..5),
    ) {
        let mut lines: String = (0..9).map(|node| format!("N{node} .x{node} N{node}x\n")).collect();
        edges.iter().for_each(|(from, to)| lines += &format!("N{from} .f{to} N{to}\n"));
        memory.iter().for_each(|node| lines += &format!("N{node} = 1\n"));
        let (graph, findings) = find_in_rust_graph(&lines);
        let leads = graph.leads_to_memory();
        let cyclic = find_cyclic_by_brute_force(&graph);
        let expected: Vec<u32> =
            (0..graph.nodes.len() as u32).filter(|&node| cyclic[node as usize] && leads[node as usize]).collect();
        let mut found: Vec<u32> = findings.cycles.iter().flat_map(|cycle| cycle.nodes.clone()).collect();
        found.sort_unstable();
        proptest::prop_assert_eq!(found, expected);
        for cycle in &findings.cycles {
            // The closed path is valid, and none remains without the suggested cuts.
            let edge = |edge: u32| graph.edges[edge as usize];
            let mut path: Vec<_> = cycle.closed_path.iter().map(|&each| edge(each)).collect();
            path.push(path[0]);
            proptest::prop_assert!(path.windows(2).all(|pair| pair[0].to == pair[1].from));
            let cut: HashSet<Field> = cycle.suggested_cuts().iter().map(|cut| field_of(&graph, cut.edge as usize)).collect();
            let members: HashSet<u32> = cycle.nodes.iter().copied().collect();
            let components = Components::of(&graph, |edge| {
                members.contains(&graph.edges[edge].from) && members.contains(&graph.edges[edge].to) && !cut.contains(&field_of(&graph, edge))
            });
            let is_cycle = (0..graph.edges.len()).any(|at| {
                let Edge { from, to, .. } = graph.edges[at];
                members.contains(&from) && members.contains(&to) && !cut.contains(&field_of(&graph, at)) && components.of_node[from as usize] == components.of_node[to as usize]
            });
            proptest::prop_assert!(!is_cycle || cycle.cuts.len() == 8, "{:?}", cycle.cuts);
        }
    }
}
