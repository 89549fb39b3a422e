//! Tests of registration: which values are registered, and for how long.

use super::super::{NotScanned, find, registry};
use super::*;
use memtrack_recorder::{scope, switch};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;

#[test]
fn nothing_is_registered_or_scanned_while_it_is_off() {
    let _guard = begin_test();
    disable();
    let layer = Layer::new("a", Some(1));
    layer.refer(&layer);
    drop(layer);
    assert_eq!(registry::entry_counts(), (0, 0));
    assert_eq!(find().err(), Some(NotScanned::Off));
    enable(RegisterOptions::new());
    assert_eq!(scan().values, 0);
}

#[test]
fn dead_values_are_forgotten_as_others_are_registered() {
    let _guard = begin_test();
    let alive: Vec<_> = (0..1000).map(|_| Layer::new("alive", None)).collect();
    let shared: Vec<Arc<u32>> = (0..1000).map(Arc::new).collect();
    shared.iter().for_each(register);
    for number in 0..100_000 {
        Layer::new("dies", None);
        register(&Arc::new(number));
        let (local, all) = registry::entry_counts();
        assert!(local <= 2 * 1000 + 256 && all <= 2 * 1000 + 256, "{local} and {all} after {number}");
    }
    drop((alive, shared));
    assert_eq!(scan().values, 0);
    assert_eq!(registry::entry_counts(), (0, 0), "a scan forgets all that is dead");
}

#[test]
fn value_ends_when_program_drops_it() {
    let _guard = begin_test();
    struct SetsOnDrop<'a>(&'a Cell<bool>);
    impl Drop for SetsOnDrop<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    impl References for SetsOnDrop<'static> {
        fn references(&self, _: &mut Visitor<'_>) {}
    }
    let ended: &'static Cell<bool> = Box::leak(Box::default());
    let value = Rc::new(SetsOnDrop(ended));
    register(&value);
    drop(value);
    assert!(ended.get());
}

#[test]
fn shared_values_of_threads_that_have_ended_are_still_visited() {
    let _guard = begin_test();
    let shared = thread::spawn(|| {
        let shared = Arc::new(5_u32);
        register(&shared);
        register(&Rc::new(7_u32));
        shared
    });
    let shared = shared.join().expect("registers");
    assert_eq!(scan().values, 1);
    drop(shared);
}

#[test]
fn registration_while_thread_ends_does_no_harm() {
    let _guard = begin_test();
    struct Late(Option<Rc<Layer>>);
    impl Drop for Late {
        fn drop(&mut self) {
            Layer::new("late", None);
            register(&Arc::new(1_u8));
            assert!(find().is_ok());
            self.0.take();
        }
    }
    thread_local! {
        static BEFORE: Cell<Option<Late>> = const { Cell::new(None) };
        static AFTER: Cell<Option<Late>> = const { Cell::new(None) };
    }
    let ended = thread::spawn(|| {
        BEFORE.set(Some(Late(None)));
        let layer = Layer::new("a", None);
        BEFORE.set(Some(Late(Some(layer))));
        AFTER.set(Some(Late(None)));
    });
    ended.join().expect("ends");
}

#[test]
fn second_scan_does_not_disturb_running_scan() {
    let _guard = begin_test();
    struct Slow(std::sync::Barrier);
    impl References for Slow {
        fn references(&self, _: &mut Visitor<'_>) {
            self.0.wait();
            self.0.wait();
        }
    }
    let slow = Arc::new(Slow(std::sync::Barrier::new(2)));
    register(&slow);
    thread::scope(|scope| {
        let scan = scope.spawn(|| find().map(|report| report.values));
        slow.0.wait();
        assert_eq!(find().err(), Some(NotScanned::Busy));
        assert_eq!(find().err(), Some(NotScanned::Busy), "a second scan does not end the first");
        slow.0.wait();
        assert_eq!(scan.join().expect("scans"), Ok(1));
    });
    disable();
    enable(RegisterOptions::new());
    assert_eq!(scan().values, 0);
}

/// A function whose name appears in a stack.
#[inline(never)]
fn makes_a_leaking_layer() {
    let layer = Layer::new("a", Some(1));
    layer.refer(&layer);
}

#[test]
fn value_shows_scope_place_and_requested_stack() {
    let _guard = begin_test();
    enable(RegisterOptions::new().stacks(true));
    switch::set(switch::SCOPES, true);
    {
        let _net = scope::root("Net");
        let _module = scope::module("encoder");
        makes_a_leaking_layer();
    }
    switch::set(switch::SCOPES, false);
    let mut report = scan();
    let created =
        |report: &Report| report.graph.text(report.graph.nodes[0].created.expect("registered")).to_owned();
    let place = created(&report);
    assert!(place.starts_with("in encoder") && place.contains("tests/registry.rs:"), "{place}");
    assert!(!place.contains("makes_a_leaking_layer"), "{place}");
    report.name_stacks();
    let stack = created(&report);
    assert!(stack.starts_with(&place) && stack.contains("makes_a_leaking_layer"), "{stack}");
}
