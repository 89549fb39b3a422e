//! A future with a scope that follows it from thread to thread. The scope is set before each poll, and the previous
//! scope is restored afterwards. Annotated `async fn`s and [`future`](super::future()) return such futures. The
//! invariant is that polling or dropping such a future leaves the scope of the calling thread unchanged.

#[cfg(feature = "record")]
use super::current::{Position, position};
use super::guard::ScopeHandle;
use super::site::{Label, Site};
#[cfg(feature = "record")]
use super::{guard::Guard, nodes::ScopeNode, observer};
#[cfg(feature = "record")]
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// `None` once the future is ready, so that the future is dropped inside its scope.
#[cfg(feature = "record")]
type Inner<F> = Option<F>;
#[cfg(not(feature = "record"))]
type Inner<F> = F;

pin_project! {
    /// A future that is polled in its scope. The scope is entered at the first poll, inside the polling thread's scope.
    /// If scopes are turned off at the first poll, the scope is never entered.
    #[must_use = "futures do nothing unless polled"]
    pub struct ScopedFuture<F> {
        #[pin]
        future: Inner<F>,
        state: State,
    }

    impl<F> PinnedDrop for ScopedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            #[cfg(feature = "record")]
            {
                let mut this = this.project();
                if this.future.is_none() {
                    return;
                }
                // Guards that are dropped with the future restore scopes of the threads that have polled it, which may be
                // other threads. So this thread's scope is saved and restored in every state.
                let _restore = Guard::resume(match this.state {
                    State::Running { current, .. } => *current,
                    State::New(_) | State::Inert => position(),
                });
                this.future.set(None);
            }
        }
    }
}

/// The scope that a future will enter at its first poll.
enum FirstScope {
    Label(Label),
    Named(ScopeKind, Cow<'static, str>),
    Resume(ScopeHandle),
}

#[cfg(not(feature = "record"))]
type State = ();

#[cfg(feature = "record")]
enum State {
    /// The future has not been polled yet.
    New(FirstScope),
    /// Scopes were turned off at the first poll.
    Inert,
    /// The future has been polled. `node` is the scope that ends with the future. `current` is the future's position
    /// when its last poll returned: the future may hold guards across an `.await`, so this may be inside `node`.
    Running { node: Option<&'static ScopeNode>, current: Position },
}

impl<F> ScopedFuture<F> {
    fn new(future: F, first: FirstScope) -> Self {
        #[cfg(feature = "record")]
        return Self { future: Some(future), state: State::New(first) };
        #[cfg(not(feature = "record"))]
        Self { future, state: () }
    }

    pub(super) fn named(kind: ScopeKind, name: Cow<'static, str>, future: F) -> Self {
        Self::new(future, FirstScope::Named(kind, name))
    }
}

impl Site {
    /// Runs `future` in the scope.
    pub fn future<F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, FirstScope::Label(self.label()))
    }

    /// Runs `future` in the scope under the name of `T`.
    pub fn future_as<T: ?Sized, F: Future>(&'static self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, FirstScope::Label(self.label_as::<T>()))
    }
}

impl ScopeHandle {
    /// Runs `future` in this scope, on any thread that polls it. Use it with `spawn`, because a spawned task does not
    /// inherit the scope of the task that spawned it.
    pub fn future<F: Future>(self, future: F) -> ScopedFuture<F> {
        ScopedFuture::new(future, FirstScope::Resume(self))
    }
}

#[cfg(feature = "record")]
impl State {
    /// Enters the scope at the first poll and returns the new state. If the scope is a root, the observer is notified
    /// while the scope is current.
    fn begin(first: &FirstScope) -> Self {
        if !switch::is_on(switch::SCOPES | switch::ACCOUNTS) {
            return Self::Inert;
        }
        if let FirstScope::Resume(handle) = first {
            return Self::Running { node: None, current: handle.position };
        }
        // If only accounts are on, only handles need to be entered, because they carry accounts.
        if !switch::is_on(switch::SCOPES) {
            return Self::Inert;
        }
        let parent = position();
        let node = match first {
            FirstScope::Label(label) => label.node_under(parent.node),
            FirstScope::Named(kind, name) => ScopeNode::child(parent.node, *kind, name),
            FirstScope::Resume(_) => return Self::Inert,
        };
        let current = Position { node: Some(node), ..parent };
        let _scope = Guard::resume(current);
        observer::notify_entered(node);
        Self::Running { node: Some(node), current }
    }
}

#[cfg(feature = "record")]
impl<F: Future> ScopedFuture<F> {
    #[inline(always)]
    fn poll_in_scope(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let mut future =
            this.future.as_mut().as_pin_mut().expect("a scoped future was polled after it was ready");
        if let State::New(first) = this.state {
            *this.state = State::begin(first);
        }
        let State::Running { node, current } = this.state else {
            return future.poll(context);
        };
        let restore = Guard::resume(*current);
        let poll = future.as_mut().poll(context);
        *current = position();
        if poll.is_ready() {
            this.future.set(None);
            drop(restore);
            if let Some(node) = *node {
                observer::notify_left(node);
            }
        }
        poll
    }
}

impl<F: Future> Future for ScopedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        #[cfg(feature = "record")]
        return self.poll_in_scope(context);
        #[cfg(not(feature = "record"))]
        self.project().future.poll(context)
    }
}

impl<F> fmt::Debug for ScopedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedFuture").finish_non_exhaustive()
    }
}
