//! Tests of handles that are unaccounted for.

use super::super::{Tracked, declare_root, root_ended};
use super::*;
use crate::graph::UnexplainedHandles;
use memtrack_recorder::{scope, switch};
use std::sync::Arc;

/// Runs `action` in a root scope, and sends the notification that the recorder's observer would send when the scope
/// ends.
fn run_in_root<R>(name: &str, action: impl FnOnce() -> R) -> R {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            switch::set(switch::SCOPES, false);
        }
    }
    switch::set(switch::SCOPES, true);
    let _off = Off;
    let root = scope::root(name);
    let result = action();
    drop(root);
    root_ended();
    result
}

fn unexplained(report: &Report) -> Vec<(String, u64, u64)> {
    let name = |each: &UnexplainedHandles| report.graph.label(each.node).to_owned();
    report.graph.unexplained.iter().map(|each| (name(each), each.handles, each.ended_roots)).collect()
}

/// A value with device memory and handles.
#[derive(Default)]
struct Part {
    parts: Mutex<Vec<Tracked<Arc<Part>>>>,
}

impl References for Part {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("parts", &self.parts);
        to.memory(buffer(std::ptr::from_ref(self).addr() as u64));
    }
}

#[test]
fn forgotten_handle_is_reported_with_its_place_once_its_scope_has_ended() {
    let _guard = begin_test();
    let line = run_in_root("step", || {
        let part = Tracked::new(Arc::new(Part::default()));
        let line = line!() + 1;
        std::mem::forget(part.clone());
        assert!(scan().graph.unexplained.is_empty(), "its scope has not ended");
        line
    });
    root_ended();
    let report = scan();
    assert_eq!(unexplained(&report), [("Part".to_owned(), 1, 2)]);
    let each = &report.graph.unexplained[0];
    assert!(each.site.contains(&format!("handles.rs:{line}:")), "{}", each.site);
    assert_eq!(each.scope.as_deref(), Some("step"));
    assert_eq!(report.unreachable, 0, "counts alone do not show it");
    assert_eq!(report.graph.nodes[each.node as usize].held, Reachability::Outside(1));
}

#[test]
fn handles_that_are_in_values_or_dropped_are_accounted_for() {
    let _guard = begin_test();
    let kept = run_in_root("step", || {
        let kept = Arc::new(Part::default());
        register(&kept);
        let inner = Tracked::new(Arc::new(Part::default()));
        kept.parts.lock().expect("not poisoned").push(inner.clone());
        kept
    });
    assert_eq!(unexplained(&scan()), []);
    drop(kept);
}

#[test]
fn cycle_of_handles_is_cycle_and_its_handles_are_in_it() {
    let _guard = begin_test();
    run_in_root("step", || {
        let part = Tracked::new(Arc::new(Part::default()));
        part.parts.lock().expect("not poisoned").push(part.clone());
    });
    let report = scan();
    assert_eq!(report.unreachable, 1);
    assert_eq!(unexplained(&report), []);
}

#[test]
fn growing_static_is_reported_with_its_growth_unless_it_was_declared() {
    static CACHE: Mutex<Vec<Tracked<Arc<Part>>>> = Mutex::new(Vec::new());
    let _guard = begin_test();
    let part = Arc::new(Part::default());
    let first = Tracked::new(Arc::clone(&part));
    for _ in 0..10 {
        run_in_root("step", || CACHE.lock().expect("not poisoned").push(first.clone()));
    }
    let report = scan();
    let reported = unexplained(&report);
    assert_eq!(reported, [("Part".to_owned(), 10, 10)], "one in each step");
    declare_root("a cache of a test", &CACHE);
    let report = Scan::new().everything(true).find().expect("no other scan runs");
    assert_eq!(unexplained(&report), []);
    let root =
        report.graph.nodes.iter().position(|node| report.graph.text(node.label).starts_with("root a cache"));
    let root = root.expect("a root") as u32;
    assert_eq!(report.graph.edges_of(root).len(), 10);
    CACHE.lock().expect("not poisoned").clear();
    drop(first);
}

#[test]
fn handles_without_scope_are_reported_only_on_request_or_when_their_thread_has_ended() {
    let _guard = begin_test();
    let part = Tracked::new(Arc::new(Part::default()));
    Box::leak(Box::new(part.clone()));
    assert_eq!(unexplained(&scan()), []);
    let all = Scan::new().all_handles(true).find().expect("no other scan runs");
    assert_eq!(all.graph.unexplained.len(), 2, "the local variable is one of them");
    let theirs = part.clone();
    std::thread::spawn(move || std::mem::forget(theirs.clone())).join().expect("forgets");
    assert_eq!(unexplained(&scan()), [("Part".to_owned(), 1, 0)]);
}

#[test]
fn handle_is_only_pointer_while_registration_is_off() {
    let _guard = begin_test();
    disable();
    let part = Tracked::new(Arc::new(Part::default()));
    enable(RegisterOptions::new());
    std::mem::forget(part.clone());
    drop(part);
    let all = Scan::new().all_handles(true).find().expect("no other scan runs");
    assert_eq!(all.values, 0, "its value was not registered");
}

#[test]
fn values_that_forgotten_handle_leads_to_are_in_graph() {
    let _guard = begin_test();
    run_in_root("step", || {
        let outer: Rc<RefCell<Vec<Rc<Layer>>>> = Rc::default();
        outer.borrow_mut().push(Layer::new("between", None));
        outer.borrow()[0].refer(&Layer::new("buffer", Some(1)));
        std::mem::forget(Tracked::new(outer));
    });
    let report = scan();
    assert_eq!(report.graph.nodes.len(), 3);
    assert_eq!(report.graph.label(report.graph.unexplained[0].node), "RefCell<Vec<Rc<Layer>>>");
}
