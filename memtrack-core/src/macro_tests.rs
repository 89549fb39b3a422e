//! Tests of the scopes that `#[track_memory]` enters.

use crate::track_memory;
use crate::with_scopes::with_scopes;
use memtrack_model::event::ScopeId;
use memtrack_recorder::scope::{current, current_id};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Here = (String, Option<&'static str>);

/// Returns the path and operator of the thread's scope.
fn here() -> Here {
    let place = current().place();
    (place.prefix(), place.operator)
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("these futures never wait"),
    }
}

#[track_memory(crate = crate)]
fn matmul() -> Here {
    here()
}

#[track_memory(name = "aten::add", crate = crate)]
async fn add() -> Here {
    here()
}

#[track_memory(optimizer, crate = crate)]
fn step() -> Here {
    matmul()
}

#[track_memory(crate = crate)]
fn boxed() -> Pin<Box<dyn Future<Output = Here>>> {
    Box::pin(async move { here() })
}

struct Linear<T>(T);

trait Layer {
    #[track_memory(module, crate = crate)]
    fn forward(&self) -> Here {
        matmul()
    }
}

impl<T> Layer for Linear<T> {}
impl Layer for (u8, u8) {}

struct Net;

#[track_memory(module, crate = crate)]
impl Net {
    const WIDTH: usize = 8;

    fn new() -> (Self, Here) {
        (Self, here())
    }

    #[track_memory(root)]
    fn train(&self) -> Here {
        Linear(0_u8).forward()
    }

    async fn infer(&self) -> Here {
        Linear(0_u8).forward()
    }

    #[track_memory(backward, name = "autograd")]
    fn backward(&self) -> Here {
        Linear(0_u8).forward()
    }

    #[track_memory(skip)]
    const fn width(&self) -> usize {
        Self::WIDTH
    }
}

#[test]
fn forms_decide_path_phase_and_operator() {
    with_scopes(|| {
        let at = |path: &str, op| (path.to_owned(), Some(op));
        assert_eq!(matmul(), at("", "matmul"));
        assert_eq!(ready(add()), at("", "aten::add"));
        assert_eq!(step(), at(".optimizer", "matmul"));
        assert_eq!(ready(boxed()), at("", "boxed"));
        let (net, seen) = Net::new();
        assert_eq!(seen, ("Net.forward".into(), None));
        assert_eq!(net.train(), at("Linear.forward", "matmul"));
        assert_eq!(ready(net.infer()), at("Net.Linear.forward", "matmul"));
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
fn early_returns_restore_the_scope() {
    with_scopes(|| {
        assert!(fails(true).is_ok());
        assert_eq!(current_id(), ScopeId::NONE);
        assert!(fails(false).is_err());
        assert_eq!(current_id(), ScopeId::NONE);
    });
}

#[track_memory(module, crate = crate)]
fn nested(depth: usize) -> Here {
    if depth == 0 { here() } else { nested(depth - 1) }
}

#[test]
fn recursion_is_a_path() {
    with_scopes(|| assert_eq!(nested(2).0, "nested.nested.nested.forward"));
}
