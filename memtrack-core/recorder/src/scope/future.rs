//! A scope that follows a future from thread to thread: set before each poll, and the previous scope restored after
//! it. Annotated `async fn`s and [`future`](super::future()) make these. The invariant: neither polling nor dropping
//! one changes the scope of the thread that does it.

use super::guard::{Guard, Here, ScopeHandle, here};
use super::nodes::ScopeNode;
use super::observer;
use super::site::{Label, Site};
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A future whose every poll runs in its scope. The scope is entered at the first poll, inside the scope of the
    /// polling thread; if scopes are off at that moment, it never is.
    #[must_use = "futures do nothing unless polled"]
    pub struct ScopedFuture<F> {
        // Empty once it is ready, so that it ends inside its scope.
        #[pin]
        future: Option<F>,
        state: State,
    }

    impl<F> PinnedDrop for ScopedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_none() {
                return;
            }
            // Guards inside the future restore scopes of the threads that polled it, so this thread's scope is
            // saved in any state.
            let _restore = Guard::resume(match this.state {
                State::Running { current, .. } => *current,
                State::New(_) | State::Inert => here(),
            });
            this.future.set(None);
        }
    }
}

/// The scope that a future will enter.
enum Begin {
    Label(Label),
    Named(ScopeKind, Cow<'static, str>),
    Resume(ScopeHandle),
}

enum State {
    /// Not polled yet.
    New(Begin),
    /// Scopes were off at the first poll.
    Inert,
    /// Polled before. `node` ends with the future; `current` is its scope when it last paused: guards may live across
    /// its awaits.
    Running { node: Option<&'static ScopeNode>, current: Here },
}

impl<F> ScopedFuture<F> {
    fn new(future: F, begin: Begin) -> Self {
        Self { future: Some(future), state: State::New(begin) }
    }

    pub(super) fn named(kind: ScopeKind, name: Cow<'static, str>, future: F) -> Self {
        Self::new(future, Begin::Named(kind, name))
    }
}

impl Site {
    /// Runs `future` in the scope.
    pub fn future<F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, Begin::Label(self.label()))
    }

    /// Runs `future` in the scope under the name of `T`.
    pub fn future_as<T: ?Sized, F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, Begin::Label(self.label_as::<T>()))
    }
}

impl ScopeHandle {
    /// Runs `future` in this scope, on any thread that polls it: for `spawn`, which loses the scope of the
    /// spawning task.
    pub fn future<F: Future>(self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, Begin::Resume(self))
    }
}

impl State {
    /// Returns the state at the first poll. The observer is notified of a root while its scope is current.
    fn begin(begin: &Begin) -> Self {
        if !switch::is_on(switch::SCOPES | switch::ACCOUNTS) {
            return Self::Inert;
        }
        if let Begin::Resume(handle) = begin {
            return Self::Running { node: None, current: handle.here };
        }
        // Accounts alone need only the scopes that carry them.
        if !switch::is_on(switch::SCOPES) {
            return Self::Inert;
        }
        let parent = here();
        let node = match begin {
            Begin::Label(label) => label.node_under(parent.node),
            Begin::Named(kind, name) => ScopeNode::child(parent.node, *kind, name),
            Begin::Resume(_) => return Self::Inert,
        };
        let current = Here { node: Some(node), ..parent };
        let _scope = Guard::resume(current);
        observer::entered(node);
        Self::Running { node: Some(node), current }
    }
}

impl<F: Future> Future for ScopedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let mut future =
            this.future.as_mut().as_pin_mut().expect("a scoped future was polled after it was ready");
        if let State::New(begin) = this.state {
            *this.state = State::begin(begin);
        }
        let State::Running { node, current } = this.state else {
            return future.poll(context);
        };
        let restore = Guard::resume(*current);
        let poll = future.as_mut().poll(context);
        *current = here();
        if poll.is_ready() {
            this.future.set(None);
            drop(restore);
            if let Some(node) = *node {
                observer::left(node);
            }
        }
        poll
    }
}

impl<F> fmt::Debug for ScopedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedFuture").finish_non_exhaustive()
    }
}
