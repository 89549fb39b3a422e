//! Tests that guards nest, restore the previous scope and notify the observer, and that handles carry scopes to other
//! threads.

use super::{Log, here};
use crate::scope::testing::{hold_switch, with_scopes};
use crate::scope::*;
use memtrack_model::event::ScopeId;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

#[test]
fn nested_modules_compose_and_are_restored() {
    with_scopes(|| {
        let root = root("Net");
        assert_eq!(here(), (".forward".into(), None));
        {
            let _encoder = module("encoder");
            let _attention = module("attn");
            let _op = operator("matmul");
            assert_eq!(here(), ("encoder.attn.forward".into(), Some("matmul")));
        }
        assert_eq!(here(), (".forward".into(), None));
        drop(root);
        let _backward = backward();
        assert_eq!(here(), (".backward".into(), None));
        let _optimizer = optimizer_named("adam");
        assert_eq!(here(), (".optimizer".into(), None));
    });
    assert_eq!(current_id(), ScopeId::NONE);
}

#[test]
fn a_panic_restores_the_scope() {
    with_scopes(|| {
        let _outer = module("outer");
        let before = current_id();
        let panicked = catch_unwind(|| {
            let _inner = module("inner");
            panic!("expected");
        });
        assert!(panicked.is_err());
        assert_eq!(current_id(), before);
    });
}

#[test]
fn a_scope_entered_twice_is_one_scope() {
    with_scopes(|| {
        let id_of = |name: &str| {
            let _module = module(name);
            current_id()
        };
        assert_eq!(id_of("twice"), id_of("twice"));
        assert_ne!(id_of("twice"), id_of("thrice"));
        let id = id_of("twice");
        let row = &table().rows[id.index()];
        assert_eq!((row.parent, row.kind, row.name.as_str()), (ScopeId::NONE, ScopeKind::Module, "twice"));
    });
}

#[test]
fn threads_that_race_get_the_same_scopes() {
    with_scopes(|| {
        let ids = |_| {
            let ids: Vec<_> = (0..500)
                .map(|number| {
                    let _module = module(&format!("raced {number}"));
                    current_id()
                })
                .collect();
            ids
        };
        let all: HashSet<_> = thread::scope(|threads| {
            let threads: Vec<_> = (0..4).map(|number| threads.spawn(move || ids(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 1);
        assert_eq!(all.into_iter().next().unwrap().iter().collect::<HashSet<_>>().len(), 500);
    });
}

#[test]
fn a_root_inside_a_root_is_a_module() {
    with_scopes(|| {
        let _outer = root("Trainer");
        let _inner = root("Net");
        assert_eq!(here(), ("Net.forward".into(), None));
    });
}

#[test]
fn no_scope_is_entered_while_scopes_are_off() {
    let _switch = hold_switch();
    let _module = module("off");
    assert_eq!(current_id(), ScopeId::NONE);
    drop(current().enter());
}

#[test]
fn a_handle_carries_the_scope_to_another_thread() {
    with_scopes(|| {
        let _module = module("spawner");
        let (handle, id) = (current(), current_id());
        let seen = thread::spawn(move || {
            let outside = current_id();
            let inside = {
                let _here = handle.enter();
                current_id()
            };
            (outside, inside, current_id())
        });
        assert_eq!(seen.join().unwrap(), (ScopeId::NONE, id, ScopeId::NONE));
    });
}

#[test]
fn the_observer_is_notified_of_operators_and_the_root() {
    with_scopes(|| {
        let log = Log::observing();
        {
            let _root = root("Net");
            let _module = module("encoder");
            let _op = operator("matmul");
            drop(current().enter());
        }
        assert_eq!(log.take(), ["entered Net", "finished matmul", "left Net"]);
    });
}

#[test]
fn the_observer_is_not_notified_of_scopes_that_a_panic_ended() {
    with_scopes(|| {
        let log = Log::observing();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _root = root("Net");
            let _op = operator("matmul");
            panic!("expected");
        }));
        assert!(panicked.is_err());
        assert_eq!(log.take(), ["entered Net"]);
    });
}
