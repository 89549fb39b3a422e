//! Tests that a scope follows its future, and that threads that poll or drop the future keep their own scopes.

use super::{Log, here};
use crate::scope::testing::{hold_switch, with_scopes};
use crate::scope::*;
use memtrack_model::event::ScopeId;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;

/// Polls a future once.
fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns pending at its first poll only.
async fn pause() {
    let mut paused = false;
    poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

fn op<F: Future>(name: &'static str, task: F) -> Pin<Box<ScopedFuture<F>>> {
    Box::pin(future(ScopeKind::Operator, name, task))
}

#[test]
fn the_scope_follows_the_future_between_threads() {
    with_scopes(|| {
        let mut task = op("load", async {
            let first = here();
            pause().await;
            (first, here())
        });
        let outer = module("outer");
        assert!(poll(&mut task).is_pending());
        assert_eq!(here(), ("outer.forward".into(), None));
        drop(outer);
        let (seen, after) = thread::spawn(move || (poll(&mut task), current_id())).join().unwrap();
        let place = ("outer.forward".to_owned(), Some("load"));
        assert_eq!(seen, Poll::Ready((place.clone(), place)));
        assert_eq!(after, ScopeId::NONE);
    });
}

#[test]
fn guards_held_across_an_await_stay_with_their_future() {
    with_scopes(|| {
        let task = || {
            op("task", async {
                let _inner = module("inner");
                pause().await;
                here()
            })
        };
        let (mut one, mut other) = (task(), task());
        assert!(poll(&mut one).is_pending() && poll(&mut other).is_pending());
        assert_eq!(current_id(), ScopeId::NONE);
        assert_eq!(poll(&mut one), Poll::Ready(("inner.forward".into(), Some("task"))));
        assert_eq!(current_id(), ScopeId::NONE);
        assert!(poll(&mut other).is_ready());
    });
}

#[test]
fn dropping_an_unfinished_future_changes_no_scope_and_reports_nothing() {
    with_scopes(|| {
        let log = Log::observing();
        let started_in = module("started in");
        let mut task = op("task", async {
            let _inner = module("inner");
            pause().await;
        });
        assert!(poll(&mut task).is_pending());
        drop(started_in);
        let _dropped_in = module("dropped in");
        drop(task);
        assert_eq!(here(), ("dropped in.forward".into(), None));
        assert_eq!(log.take(), [""; 0]);
    });
}

#[test]
fn an_operator_is_finished_when_its_future_is_ready() {
    with_scopes(|| {
        let log = Log::observing();
        let mut root = Box::pin(future(ScopeKind::Root, "Net", async {
            op("matmul", pause()).await;
        }));
        assert!(poll(&mut root).is_pending());
        assert_eq!(log.take(), ["entered Net"]);
        assert!(poll(&mut root).is_ready());
        assert_eq!(log.take(), ["finished matmul", "left Net"]);
        drop(root);
        assert_eq!(log.take(), [""; 0]);
    });
}

#[test]
fn a_future_first_polled_while_scopes_are_off_stays_outside() {
    let mut task = op("early", async {
        pause().await;
        here()
    });
    {
        let _switch = hold_switch();
        assert!(poll(&mut task).is_pending());
    }
    with_scopes(|| assert_eq!(poll(&mut task), Poll::Ready((String::new(), None))));
}

#[test]
fn a_handle_carries_its_scope_to_a_spawned_future() {
    with_scopes(|| {
        let outer = module("spawner");
        let mut task = Box::pin(current().future(async { here() }));
        drop(outer);
        let seen = thread::spawn(move || poll(&mut task)).join().unwrap();
        assert_eq!(seen, Poll::Ready(("spawner.forward".into(), None)));
    });
}
