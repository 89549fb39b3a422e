//! Tests with unusual values: values that report too many pointers, opaque, panicking and unsized values, and values
//! whose destructors scan.

use super::super::{NotScanned, find, register_dyn};
use super::*;
use memtrack_model::references::{Counted, Path, Sink};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value that reports its references by calling a function.
struct Custom {
    next: RefCell<Vec<Rc<Custom>>>,
    report: fn(&Custom, &mut Visitor<'_>),
}

impl Custom {
    #[track_caller]
    fn new(report: fn(&Self, &mut Visitor<'_>)) -> Rc<Self> {
        let custom = Rc::new(Self { next: RefCell::default(), report });
        register(&custom);
        custom
    }
}

impl References for Custom {
    fn references(&self, to: &mut Visitor<'_>) {
        (self.report)(self, to);
        to.memory(buffer(1));
    }
}

fn reports_twice(custom: &Custom, to: &mut Visitor<'_>) {
    to.field("next", &custom.next);
    to.field("again", &custom.next);
}

#[test]
fn pointer_reported_twice_is_no_finding_while_value_is_held() {
    let _guard = begin_test();
    let custom = Custom::new(reports_twice);
    let itself = Rc::clone(&custom);
    custom.next.borrow_mut().push(itself);
    let report = scan();
    assert_eq!(report.unreachable, 0, "two pointers, of which one is reported twice");
    let remark = &report.graph.remarks[0];
    assert!(remark.contains("Custom") && remark.contains("more than once"), "{remark}");
    drop(custom);
    let report = scan();
    assert_eq!(report.unreachable, 0, "more were reported than there are");
    assert!(report.graph.remarks[0].contains("more than once"), "{:?}", report.graph.remarks);
}

#[test]
fn reported_pointer_of_another_value_causes_remark() {
    let _guard = begin_test();
    // Also reports the pointers in the values to which it points, although it does not hold those pointers itself.
    let looks_behind: fn(&Custom, &mut Visitor<'_>) = |custom, to| {
        to.field("next", &custom.next);
        custom.next.borrow().iter().for_each(|next| to.field("behind", &next.next));
    };
    let outer = Custom::new(looks_behind);
    let inner = Custom::new(|custom, to| to.field("next", &custom.next));
    outer.next.borrow_mut().push(Rc::clone(&inner));
    inner.next.borrow_mut().push(Rc::clone(&outer));
    drop(inner);
    let report = scan();
    assert_eq!(report.unreachable, 0);
    assert!(report.graph.remarks[0].contains("more than once"), "{:?}", report.graph.remarks);
    drop(outer);
}

#[test]
fn copies_that_are_reported_from_stack_are_different_pointers() {
    let _guard = begin_test();
    let copies: fn(&Custom, &mut Visitor<'_>) = |custom, to| {
        for next in custom.next.borrow().iter() {
            let copy = Rc::clone(next);
            to.strong(&copy);
        }
    };
    let custom = Custom::new(copies);
    let both = [Rc::clone(&custom), Rc::clone(&custom)];
    custom.next.borrow_mut().extend(both);
    assert_eq!(scan().unreachable, 0);
    drop(custom);
    let report = scan();
    assert_eq!(report.unreachable, 1);
    assert!(report.graph.remarks.is_empty(), "{:?}", report.graph.remarks);
}

#[test]
fn opaque_and_panicking_values_hide_their_contents() {
    let _guard = begin_test();
    for (report, why) in [
        ((|_, to| to.opaque("a closure")) as fn(&Custom, &mut Visitor<'_>), "a closure"),
        (|_, _| panic!("on purpose"), "its `References` panicked"),
    ] {
        let custom = Custom::new(report);
        let itself = Rc::clone(&custom);
        custom.next.borrow_mut().push(itself);
        drop(custom);
        let report = scan_everything();
        assert_eq!((report.unreachable, report.incomplete), (0, 1));
        let node = &report.graph.nodes[0];
        assert_eq!(report.graph.text(node.incomplete.expect("incomplete")), why);
        disable();
        enable(RegisterOptions::new());
    }
}

#[test]
fn value_that_is_borrowed_for_writing_is_skipped() {
    let _guard = begin_test();
    let layer = Layer::new("a", Some(1));
    layer.refer(&layer);
    let weak = Rc::downgrade(&layer);
    drop(layer);
    let strong = weak.upgrade().expect("a cycle");
    let borrowed = strong.next.borrow_mut();
    let report = scan_everything();
    assert_eq!((report.unreachable, report.incomplete), (0, 1));
    drop(borrowed);
}

#[test]
fn weak_pointers_count_only_if_reachable_from_outside() {
    let _guard = begin_test();
    struct Child {
        parent: RefCell<std::rc::Weak<Child>>,
        next: RefCell<Option<Rc<Child>>>,
    }
    impl References for Child {
        fn references(&self, to: &mut Visitor<'_>) {
            to.field("parent", &self.parent);
            to.field("next", &self.next);
            to.memory(buffer(1));
        }
    }
    let new = || Rc::new(Child { parent: RefCell::default(), next: RefCell::default() });
    let (a, b) = (new(), new());
    register(&a);
    *a.next.borrow_mut() = Some(Rc::clone(&b));
    *b.parent.borrow_mut() = Rc::downgrade(&a);
    drop((a, b));
    assert_eq!(scan().values, 0, "with a weak pointer back there is no cycle");

    let (a, b) = (new(), new());
    register(&a);
    register(&a);
    *a.next.borrow_mut() = Some(Rc::clone(&b));
    *b.next.borrow_mut() = Some(Rc::clone(&a));
    *b.parent.borrow_mut() = Rc::downgrade(&a);
    let outside = Rc::downgrade(&b);
    drop((a, b));
    let weak =
        |report: &Report| -> Vec<u64> { report.graph.nodes.iter().map(|node| node.weak_outside).collect() };
    let report = scan();
    assert_eq!(report.unreachable, 2);
    // `b` can be reached through the pointer from outside, and so can `b`'s weak pointer to `a`.
    assert_eq!(weak(&report), [1, 1]);
    drop(outside);
    assert_eq!(weak(&scan()), [0, 0]);
}

#[test]
fn one_value_behind_pointers_of_several_types_is_one_node() {
    let _guard = begin_test();
    trait Shape: References {}
    #[derive(Default)]
    struct Square(RefCell<Vec<Rc<dyn Shape>>>);
    impl Shape for Square {}
    impl References for Square {
        fn references(&self, to: &mut Visitor<'_>) {
            to.field("0", &self.0);
            to.memory(buffer(1));
        }
    }
    let square = Rc::new(Square::default());
    register(&square);
    let shape: Rc<dyn Shape> = Rc::clone(&square) as _;
    register_dyn(&shape);
    square.0.borrow_mut().push(Rc::clone(&shape));
    drop((square, shape));
    let report = scan();
    assert_eq!((report.values, report.unreachable), (1, 1), "a cycle through a trait object");
    assert_eq!(report.graph.label(0), "Square");
    assert_eq!(report.graph.nodes[0].weak_outside, 0);
    assert_eq!(report.graph.text(report.graph.edges[0].path), ".0[0]");
}

#[test]
fn value_registered_only_as_trait_object_is_found() {
    let _guard = begin_test();
    trait Shape: References {}
    struct Square(RefCell<Option<Rc<dyn Shape>>>);
    impl Shape for Square {}
    impl References for Square {
        fn references(&self, to: &mut Visitor<'_>) {
            to.field("0", &self.0);
            to.memory(buffer(1));
        }
    }
    let square = Rc::new(Square(RefCell::default()));
    let shape: Rc<dyn Shape> = Rc::clone(&square) as _;
    register_dyn(&shape);
    *square.0.borrow_mut() = Some(shape);
    drop(square);
    assert_eq!(scan().unreachable, 1);
}

#[test]
fn values_without_size_are_distinguished() {
    let _guard = begin_test();
    struct Nothing;
    impl References for Nothing {
        fn references(&self, _: &mut Visitor<'_>) {}
    }
    struct Holder(Vec<Rc<Nothing>>, Vec<Rc<dyn References>>);
    impl References for Holder {
        fn references(&self, to: &mut Visitor<'_>) {
            to.field("0", &self.0);
            to.field("1", &self.1);
        }
    }
    let nothings: Vec<Rc<Nothing>> = (0..1000).map(|_| Rc::new(Nothing)).collect();
    let others: Vec<Rc<dyn References>> = (0..1000_u32).map(|number| Rc::new(number) as _).collect();
    let holder = Rc::new(Holder(nothings.clone(), others));
    register(&holder);
    nothings.iter().for_each(register);
    let report = scan_everything();
    assert_eq!((report.values, report.pointers), (2001, 2000));
    let held: Vec<Reachability> = report.graph.nodes.iter().map(|node| node.held).collect();
    assert_eq!(
        held.iter().filter(|held| **held == Reachability::Outside(1)).count(),
        1001,
        "the holder, and each once"
    );
}

#[test]
fn destructor_that_scan_runs_may_register_and_scan() {
    let _guard = begin_test();
    thread_local! {
        static DROPPED: Cell<Option<Result<u64, NotScanned>>> = const { Cell::new(None) };
    }
    /// A value that drops its reference to itself while it is visited, so that the scan holds the last pointer.
    struct Fleeting(RefCell<Option<Rc<Fleeting>>>);
    impl References for Fleeting {
        fn references(&self, to: &mut Visitor<'_>) {
            let itself = self.0.borrow_mut().take();
            drop(itself);
            to.memory(buffer(1));
        }
    }
    impl Drop for Fleeting {
        fn drop(&mut self) {
            assert!(!memtrack_recorder::reentry::is_inside(), "what it frees is the program's");
            Layer::new("made by a destructor", Some(2));
            DROPPED.set(Some(find().map(|report| report.values)));
            panic!("on purpose");
        }
    }
    let fleeting = Rc::new(Fleeting(RefCell::default()));
    register(&fleeting);
    *fleeting.0.borrow_mut() = Some(Rc::clone(&fleeting));
    drop(fleeting);
    assert_eq!(scan().unreachable, 0);
    assert_eq!(DROPPED.get(), Some(Err(NotScanned::Busy)));
    assert_eq!(scan().values, 0, "all values are gone, and scans still work");
}

#[test]
fn scan_during_visit_reports_that_another_is_running() {
    let _guard = begin_test();
    let custom = Custom::new(|_, to| {
        assert_eq!(find().err(), Some(NotScanned::Busy));
        Layer::new("registered meanwhile", None);
        to.show("scans", &true);
    });
    let report = scan_everything();
    assert_eq!((report.values, report.incomplete), (1, 0));
    drop(custom);
}

#[test]
fn scan_leaves_counts_and_memory_as_they_were() {
    let _guard = begin_test();
    let layer = Layer::new("a", Some(1));
    layer.refer(&layer);
    scan();
    assert_eq!((Rc::strong_count(&layer), Rc::weak_count(&layer)), (2, 1));
    assert!(!memtrack_recorder::reentry::is_inside());
}

/// An implementation of `Sink` may panic, and the visitor's counts must survive that.
#[test]
fn visit_that_panics_does_not_stop_next() {
    struct Panics;
    impl Sink for Panics {
        fn wants_paths(&self) -> bool {
            true
        }
        fn strong(&mut self, _: &Path, _: &dyn Counted, _: Option<u64>) {
            panic!("on purpose");
        }
        fn weak(&mut self, _: &Path, _: usize) {}
        fn memory(&mut self, _: &Path, _: DeviceMemory) {}
        fn opaque(&mut self, _: &Path, _: &str) {}
        fn show(&mut self, _: &Path, _: &dyn std::fmt::Debug) {}
    }
    let _guard = begin_test();
    let layer = Layer::new("a", Some(1));
    layer.refer(&layer);
    let visit = || layer.references(&mut Visitor::new(&mut Panics));
    assert!(catch_unwind(AssertUnwindSafe(visit)).is_err());
    drop(layer);
    assert_eq!(scan().unreachable, 1);
}

/// A value whose `Debug` implementation panics, either always or when writing fails.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Unshowable(u64);

impl References for Unshowable {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

impl std::fmt::Debug for Unshowable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert_ne!(self.0, 0, "cannot be shown");
        (0..1000).for_each(|_| write!(f, "as long as it is").unwrap());
        Ok(())
    }
}

#[test]
fn values_that_cannot_be_shown_hide_no_finding() {
    let _guard = begin_test();
    for number in [0, 1] {
        let shows: fn(&Custom, &mut Visitor<'_>) = match number {
            0 => |custom, to| {
                to.show("name", &Unshowable(0));
                custom.next.borrow().iter().for_each(|next| to.entry(&Unshowable(0), next));
            },
            _ => |custom, to| {
                to.show("name", &Unshowable(1));
                custom.next.borrow().iter().for_each(|next| to.entry(&Unshowable(1), next));
            },
        };
        let custom = Custom::new(shows);
        let itself = Rc::clone(&custom);
        custom.next.borrow_mut().push(itself);
        drop(custom);
    }
    let report = scan();
    let findings = report.findings();
    assert_eq!((findings.leaks(), report.incomplete), (2, 0), "{report}");
    let labels: Vec<&str> = (0..2).map(|node| report.graph.label(node)).collect();
    assert!(labels.iter().all(|label| label.ends_with('…') && label.len() < 200), "{labels:?}");
}

#[test]
fn report_states_that_values_could_not_be_fully_visited() {
    let _guard = begin_test();
    let custom = Custom::new(|_, to| to.opaque("a closure"));
    let itself = Rc::clone(&custom);
    custom.next.borrow_mut().push(itself);
    drop(custom);
    let text = scan().to_string();
    assert!(text.starts_with("No cycle.\n1 value could not be inspected"), "{text}");
}
