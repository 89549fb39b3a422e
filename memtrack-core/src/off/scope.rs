//! Scopes in builds without the recorder, which have the same names but no effect. Guards are zero-sized and do not
//! implement `Drop`, sites are empty, and scoped futures only forward to the inner future, so the compiler removes all
//! of them.

pub use memtrack_model::ScopePosition;
use memtrack_model::event::ScopeId;
pub use memtrack_model::snapshot::ScopeKind;
pub use memtrack_model::{Phase, ScopeStep};
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A guard that restores the previous scope when it is dropped. Does nothing without the recorder.
#[derive(Debug)]
#[must_use = "the scope ends when the guard is dropped: bind it to a name such as `_scope`"]
pub struct Guard {
    /// Makes the guard `!Send`, as it is with the recorder, so that a program that builds without the recorder also
    /// builds with it.
    not_send: PhantomData<*const ()>,
}

/// A scope that can be carried to another thread or task. It is empty without the recorder.
#[derive(Clone, Copy, Debug)]
pub struct ScopeHandle;

/// An annotated function, for `__private`. It is empty without the recorder.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site;

pin_project! {
    /// A future that runs in a scope. Without the recorder, it is just the inner future.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ScopedFuture<F> {
        #[pin]
        future: F,
    }
}

/// Returns this thread's scope, to be carried to another thread or task.
#[inline(always)]
pub const fn current() -> ScopeHandle {
    ScopeHandle
}

#[inline(always)]
const fn enter(_kind: ScopeKind, _name: &str) -> Guard {
    Guard { not_send: PhantomData }
}

impl ScopeHandle {
    /// Makes this the thread's scope until the guard is dropped.
    #[inline(always)]
    pub const fn enter(self) -> Guard {
        Guard { not_send: PhantomData }
    }

    /// Returns the scope's id in recordings.
    #[inline(always)]
    pub const fn id(self) -> ScopeId {
        ScopeId::NONE
    }

    /// Returns the scope's position: its modules, phase and operator.
    pub fn place(self) -> ScopePosition<'static> {
        ScopePosition::default()
    }

    /// Runs `future` in this scope.
    #[inline(always)]
    pub fn future<F: Future>(self, future: F) -> ScopedFuture<F> {
        ScopedFuture { future }
    }
}

impl Site {
    /// Creates a site.
    pub const fn new(_kind: ScopeKind, _name: &'static str) -> Self {
        Self
    }

    /// Enters the scope.
    #[inline(always)]
    pub const fn enter(&'static self) -> Guard {
        Guard { not_send: PhantomData }
    }

    /// Enters the scope under the name of `T`.
    #[inline(always)]
    pub const fn enter_as<T: ?Sized>(&'static self) -> Guard {
        Guard { not_send: PhantomData }
    }

    /// Runs `future` in the scope.
    #[inline(always)]
    pub fn future<F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture { future }
    }

    /// Runs `future` in the scope under the name of `T`.
    #[inline(always)]
    pub fn future_as<T: ?Sized, F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture { future }
    }
}

impl<F: Future> Future for ScopedFuture<F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(context)
    }
}

/// Enters an operator. Does nothing without the recorder.
#[inline(always)]
pub fn operator(name: &str) -> Guard {
    enter(ScopeKind::Operator, name)
}

/// Enters a module. Does nothing without the recorder.
#[inline(always)]
pub fn module(name: &str) -> Guard {
    enter(ScopeKind::Module, name)
}

/// Enters the outermost module. Does nothing without the recorder.
#[inline(always)]
pub fn root(name: &str) -> Guard {
    enter(ScopeKind::Root, name)
}

/// Enters the backward pass. Does nothing without the recorder.
#[inline(always)]
pub fn backward() -> Guard {
    enter(ScopeKind::Backward, "backward")
}

/// Enters the backward pass under a given name. Does nothing without the recorder.
#[inline(always)]
pub fn backward_named(name: &str) -> Guard {
    enter(ScopeKind::Backward, name)
}

/// Enters the optimizer step. Does nothing without the recorder.
#[inline(always)]
pub fn optimizer() -> Guard {
    enter(ScopeKind::Optimizer, "optimizer")
}

/// Enters the optimizer step under a given name. Does nothing without the recorder.
#[inline(always)]
pub fn optimizer_named(name: &str) -> Guard {
    enter(ScopeKind::Optimizer, name)
}

/// Runs `future`. Without the recorder, it carries no scope.
#[inline(always)]
pub fn future<F: Future>(
    _kind: ScopeKind,
    _name: impl Into<Cow<'static, str>>,
    future: F,
) -> ScopedFuture<F> {
    ScopedFuture { future }
}
