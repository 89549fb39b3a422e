//! Tests of the scopes that `#[track_memory]` enters.

use crate::track_memory;
use crate::with_scopes::with_scopes;
use memtrack_model::event::ScopeId;
use memtrack_recorder::scope::{current, current_id};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type PathAndOperator = (String, Option<&'static str>);

/// Returns the path and the operator of the thread's current scope.
fn current_scope() -> PathAndOperator {
    let place = current().place();
    (place.prefix(), place.operator)
}

fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("these futures never wait"),
    }
}

#[track_memory(crate = crate)]
fn matmul() -> PathAndOperator {
    current_scope()
}

#[track_memory(name = "aten::add", crate = crate)]
async fn add() -> PathAndOperator {
    current_scope()
}

#[track_memory(optimizer, crate = crate)]
fn step() -> PathAndOperator {
    matmul()
}

#[track_memory(crate = crate)]
fn boxed() -> Pin<Box<dyn Future<Output = PathAndOperator>>> {
    Box::pin(async move { current_scope() })
}

struct Linear<T>(T);

trait Layer {
    #[track_memory(module, crate = crate)]
    fn forward(&self) -> PathAndOperator {
        matmul()
    }
}

impl<T> Layer for Linear<T> {}
impl Layer for (u8, u8) {}

struct Net;

#[track_memory(module, crate = crate)]
impl Net {
    const WIDTH: usize = 8;

    fn new() -> (Self, PathAndOperator) {
        (Self, current_scope())
    }

    #[track_memory(root)]
    fn train(&self) -> PathAndOperator {
        Linear(0_u8).forward()
    }

    async fn infer(&self) -> PathAndOperator {
        Linear(0_u8).forward()
    }

    #[track_memory(backward, name = "autograd")]
    fn backward(&self) -> PathAndOperator {
        Linear(0_u8).forward()
    }

    #[track_memory(skip)]
    const fn width(&self) -> usize {
        Self::WIDTH
    }
}

#[test]
fn attributes_determine_path_phase_and_operator() {
    with_scopes(|| {
        let at = |path: &str, op| (path.to_owned(), Some(op));
        assert_eq!(matmul(), at("", "matmul"));
        assert_eq!(poll_once(add()), at("", "aten::add"));
        assert_eq!(step(), at(".optimizer", "matmul"));
        assert_eq!(poll_once(boxed()), at("", "boxed"));
        let (net, scope_in_new) = Net::new();
        assert_eq!(scope_in_new, ("Net.forward".into(), None));
        assert_eq!(net.train(), at("Linear.forward", "matmul"));
        assert_eq!(poll_once(net.infer()), at("Net.Linear.forward", "matmul"));
        assert_eq!(net.backward(), at("Linear.backward", "matmul"));
        assert_eq!(net.width(), 8);
        assert_eq!((0_u8, 0_u8).forward(), at("forward.forward", "matmul"));
        assert_eq!(current_id(), ScopeId::NONE);
    });
}

#[track_memory(crate = crate)]
fn fails(early: bool) -> Result<(), std::num::ParseIntError> {
    if early {
        return Ok(());
    }
    "x".parse::<u8>()?;
    Ok(())
}

#[test]
fn early_returns_restore_scope() {
    with_scopes(|| {
        assert!(fails(true).is_ok());
        assert_eq!(current_id(), ScopeId::NONE);
        assert!(fails(false).is_err());
        assert_eq!(current_id(), ScopeId::NONE);
    });
}

#[track_memory(module, crate = crate)]
fn nested(depth: usize) -> PathAndOperator {
    if depth == 0 { current_scope() } else { nested(depth - 1) }
}

#[test]
fn recursion_is_path() {
    with_scopes(|| assert_eq!(nested(2).0, "nested.nested.nested.forward"));
}
