//! Tests of the values that a scan finds.

use super::*;

#[test]
fn value_that_refers_to_itself_is_found_with_its_memory_and_its_place() {
    let _guard = begin_test();
    let layer = Layer::new("a", Some(0x100));
    layer.refer(&layer);
    assert!(scan().graph.nodes.is_empty());
    drop(layer);
    let report = scan();
    let graph = &report.graph;
    assert_eq!(unreachable_names(graph), ["a"]);
    assert_eq!(edges(graph), ["a.next[0] -> a"]);
    assert_eq!(graph.label(0), "Layer\nname: \"a\"");
    assert!(graph.nodes[0].root);
    assert_eq!(graph.nodes[0].weak_outside, 0);
    let created = graph.text(graph.nodes[0].created.expect("registered"));
    assert!(created.contains("tests/found.rs:"), "{created}");
    let memory = graph.memory_of(0);
    assert_eq!(memory.len(), 1);
    assert_eq!((memory[0].storage, memory[0].size_bytes), (0x100, Some(1024)));
    assert_eq!(graph.text(memory[0].device), "cuda:0");
    assert_eq!((report.values, report.pointers, report.unreachable, report.with_memory), (1, 1, 1, 1));
    assert!(graph.remarks.is_empty(), "{:?}", graph.remarks);
}

#[test]
fn two_values_that_refer_only_to_each_other_are_found() {
    let _guard = begin_test();
    let (a, b) = (Layer::new("a", None), Layer::new("b", Some(1)));
    a.refer(&b);
    b.refer(&a);
    drop(a);
    assert!(scan().graph.nodes.is_empty());
    drop(b);
    let graph = scan().graph;
    assert_eq!(unreachable_names(&graph), ["a", "b"]);
    assert_eq!(edges(&graph), ["a.next[0] -> b", "b.next[0] -> a"]);
    let serial = |node: usize| graph.nodes[node].serial.expect("registered");
    assert!(serial(0) < serial(1), "the younger one has the higher number");
}

#[test]
fn cycle_without_device_memory_is_counted_and_not_reported() {
    let _guard = begin_test();
    let layer = Layer::new("a", None);
    layer.refer(&layer);
    drop(layer);
    let report = scan();
    assert_eq!(report.unreachable, 1);
    assert!(report.graph.nodes.is_empty());
}

#[test]
fn only_values_that_lead_to_device_memory_are_reported() {
    let _guard = begin_test();
    {
        let a = Layer::new("a", None);
        let tail = Layer::new("tail", None);
        let buffer = Layer::new("buffer", Some(1));
        let beside = Layer::new("beside", None);
        a.refer(&a);
        a.refer(&tail);
        tail.refer(&buffer);
        a.refer(&beside);
    }
    let report = scan();
    assert_eq!(unreachable_names(&report.graph), ["a", "buffer", "tail"]);
    assert_eq!(report.unreachable, 4);
}

#[test]
fn parts_that_are_reached_from_outside_are_not_garbage() {
    let _guard = begin_test();
    let shared = Layer::new("shared", Some(1));
    let feeder = Layer::new("feeder", None);
    {
        let (a, b) = (Layer::new("a", Some(2)), Layer::new("b", None));
        a.refer(&b);
        b.refer(&a);
        a.refer(&shared);
        feeder.refer(&a);
    }
    assert!(scan().graph.nodes.is_empty(), "the feeder holds all of it");
    drop(feeder);
    let graph = scan().graph;
    assert_eq!(unreachable_names(&graph), ["a", "b"]);
    assert!(
        node_names(&graph).contains(&("shared".to_owned(), Reachability::Outside(1))),
        "pinned: {:?}",
        node_names(&graph)
    );
    assert_eq!(edges(&graph), ["a.next[0] -> b", "a.next[1] -> shared", "b.next[0] -> a"]);
}

#[test]
fn memory_held_indirectly_from_outside_is_pinned() {
    let _guard = begin_test();
    let holder = Layer::new("holder", None);
    holder.refer(&Layer::new("buffer", Some(1)));
    {
        let a = Layer::new("a", None);
        a.refer(&a);
        a.refer(&holder);
    }
    let graph = scan().graph;
    let held = [
        ("a", Reachability::Unreachable),
        ("buffer", Reachability::Reachable),
        ("holder", Reachability::Outside(1)),
    ];
    assert_eq!(node_names(&graph), held.map(|(name, held)| (name.to_owned(), held)));
}

#[test]
fn two_cycles_that_overlap_are_one_graph() {
    let _guard = begin_test();
    {
        let [a, b, c] = ["a", "b", "c"].map(|name| Layer::new(name, None));
        b.refer(&Layer::new("buffer", Some(1)));
        a.refer(&b);
        b.refer(&a);
        b.refer(&c);
        c.refer(&b);
    }
    let graph = scan().graph;
    assert_eq!(unreachable_names(&graph), ["a", "b", "buffer", "c"]);
    assert_eq!(graph.edges.len(), 5);
}

#[test]
fn parallel_pointers_are_counted_separately() {
    let _guard = begin_test();
    let (a, b) = (Layer::new("a", Some(1)), Layer::new("b", None));
    a.refer(&b);
    a.refer(&b);
    b.refer(&a);
    b.refer(&a);
    drop(a);
    assert_eq!(scan().unreachable, 0);
    drop(b);
    let graph = scan().graph;
    assert_eq!(edges(&graph), ["a.next[0] -> b", "a.next[1] -> b", "b.next[0] -> a", "b.next[1] -> a"]);
}

#[test]
fn unregistered_values_are_found_through_registered_values() {
    let _guard = begin_test();
    let unregistered = |name, memory| Rc::new(Layer { name, next: RefCell::default(), memory });
    {
        let a = Layer::new("a", None);
        let (b, c) = (unregistered("b", None), unregistered("c", Some(buffer(1))));
        a.refer(&b);
        b.refer(&c);
        c.refer(&a);
    }
    let graph = scan().graph;
    assert_eq!(unreachable_names(&graph), ["a", "b", "c"]);
    assert_eq!(graph.nodes.iter().filter(|node| node.serial.is_some()).count(), 1);
}

#[test]
fn forgotten_pointer_is_not_a_cycle() {
    let _guard = begin_test();
    let layer = Layer::new("a", Some(1));
    std::mem::forget(Rc::clone(&layer));
    drop(layer);
    let report = scan();
    assert_eq!(report.unreachable, 0);
    assert!(report.graph.nodes.is_empty());
}

#[test]
fn cycles_held_from_outside_are_included_on_request() {
    let _guard = begin_test();
    let outside = Layer::new("outside", None);
    let beside = Layer::new("beside", Some(7));
    {
        let (a, b) = (Layer::new("a", None), Layer::new("b", Some(1)));
        outside.refer(&a);
        a.refer(&b);
        b.refer(&a);
        b.refer(&Layer::new("below", Some(2)));
    }
    assert!(scan().graph.nodes.is_empty());
    let report = Scan::new().live_cycles(true).find().expect("no other scan runs");
    let held =
        [("a", Reachability::Reachable), ("b", Reachability::Reachable), ("below", Reachability::Reachable)];
    assert_eq!(node_names(&report.graph), held.map(|(name, held)| (name.to_owned(), held)));
    drop((outside, beside));
}

#[test]
fn long_chain_behind_cycle_is_found() {
    const LONG: usize = 100_000;
    let _guard = begin_test();
    {
        let first = Layer::new("first", None);
        first.refer(&first);
        let mut last = Rc::clone(&first);
        for _ in 0..LONG {
            let next = Layer { name: "link", next: RefCell::default(), memory: None };
            let next = Rc::new(next);
            last.refer(&next);
            last = next;
        }
        last.refer(&Layer::new("buffer", Some(1)));
    }
    let report = scan();
    assert_eq!(report.unreachable, LONG as u64 + 2);
    assert_eq!(report.graph.nodes.len(), LONG + 2);
}

#[test]
fn each_of_million_values_is_visited_once() {
    const MANY: u64 = 1_000_000;
    let _guard = begin_test();
    let mut kept = Vec::new();
    let mut last: Option<Rc<Layer>> = None;
    for _ in 0..MANY {
        let layer = Rc::new(Layer { name: "", next: RefCell::default(), memory: None });
        last.iter().for_each(|last| layer.refer(last));
        kept.push(Rc::clone(&layer));
        last = Some(layer);
    }
    register(last.as_ref().expect("many"));
    let report = scan();
    assert_eq!((report.values, report.pointers), (MANY, MANY - 1));
    // Drop them one after another, newest first, because dropping such a chain from its head would need a deep stack.
    drop(last);
    while kept.pop().is_some() {}
}

#[test]
fn values_beyond_maximum_are_reported_as_left_out() {
    let _guard = begin_test();
    {
        let a = Layer::new("a", Some(1));
        a.refer(&a);
        let b = Rc::new(Layer { name: "b", next: RefCell::default(), memory: None });
        a.refer(&b);
        b.refer(&a);
    }
    let report = Scan::new().max_values(1).find().expect("no other scan runs");
    assert_eq!((report.values, report.unreachable), (1, 0), "a skipped pointer may be held from outside");
    assert!(
        report.graph.remarks[0].contains("1 pointer to further values passed over"),
        "{:?}",
        report.graph.remarks
    );
    assert_eq!(scan().unreachable, 2);
}
