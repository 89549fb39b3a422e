//! The guard that sets and restores the current scope of a thread. All code that enters a scope calls this module. The
//! invariant is that once a guard is dropped, however its block is left, the thread's previous scope is current again.

#[cfg(feature = "record")]
use super::current::{Position, current_account, current_node, position, replace_current, set_account};
#[cfg(feature = "record")]
use super::{nodes::ScopeNode, nodes::id_of, observer};
#[cfg(feature = "record")]
use crate::{accounts::Membership, switch};
use memtrack_model::ScopePosition;
use memtrack_model::event::ScopeId;
use memtrack_model::snapshot::ScopeKind;
use std::fmt;
use std::marker::PhantomData;

/// Returns a handle to this thread's scope, which can be passed to another thread or task.
///
/// ```
/// let scope = memtrack_core::scope::current();
/// std::thread::spawn(move || {
///     let _here = scope.enter();
///     // memory allocated here belongs to the scope of the spawning thread
/// });
/// ```
#[inline]
pub fn current() -> ScopeHandle {
    ScopeHandle {
        #[cfg(feature = "record")]
        position: position(),
    }
}

/// A handle to a scope, which can be passed to another thread or task. See [`current`].
#[derive(Clone, Copy)]
pub struct ScopeHandle {
    #[cfg(feature = "record")]
    pub(super) position: Position,
}

impl ScopeHandle {
    /// Returns a handle to the calling thread's scope, but in `account`.
    #[cfg(feature = "record")]
    pub(crate) fn in_account(account: Membership) -> Self {
        Self { position: Position { node: current_node(), account } }
    }

    /// Makes the scope current on this thread until the guard is dropped. The operator or root that the scope belongs to
    /// does not end with this guard, but with the guard that began it.
    #[inline]
    pub fn enter(self) -> Guard {
        #[cfg(feature = "record")]
        if switch::is_on(switch::SCOPES | switch::ACCOUNTS) {
            return Guard::resume(self.position);
        }
        Guard::inert()
    }

    /// Returns the scope's id in recordings.
    #[inline]
    pub fn id(self) -> ScopeId {
        #[cfg(feature = "record")]
        return id_of(self.position.node);
        #[cfg(not(feature = "record"))]
        ScopeId::NONE
    }

    /// Returns the scope's position, which consists of modules, phase and operator. Visits all enclosing scopes, so it
    /// is meant for logs.
    pub fn place(self) -> ScopePosition<'static> {
        #[cfg(feature = "record")]
        return self.position.node.map(ScopeNode::place).unwrap_or_default();
        #[cfg(not(feature = "record"))]
        ScopePosition::default()
    }
}

impl fmt::Debug for ScopeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScopeHandle").field(&self.id()).finish()
    }
}

/// A guard for a scope that is current on the thread while the guard exists. Dropping the guard restores the previous
/// scope, even on `?`, an early return or a panic. A future that holds a guard across an `.await` is not `Send`; use
/// [`future`](super::future()) or an annotated `async fn` there.
///
/// A guard stays on its thread; a [`ScopeHandle`] can be sent to others:
/// ```compile_fail,E0277
/// let scope = memtrack_core::scope::module("encoder");
/// std::thread::spawn(move || drop(scope));
/// ```
#[must_use = "the scope ends when the guard is dropped: bind it to a name such as `_scope`"]
pub struct Guard {
    #[cfg(feature = "record")]
    state: State,
    /// Keeps the guard on this thread, because the scope that it restores belongs to this thread.
    not_send: PhantomData<*const ()>,
}

#[cfg(feature = "record")]
#[derive(Clone, Copy)]
enum State {
    /// Scopes were turned off when the guard was created. Dropping it does nothing.
    Inert,
    /// Only the thread's current scope was changed, and no scope ends with the guard.
    Resumed { previous: Position },
    /// `node` was entered and ends with the guard.
    Entered { node: &'static ScopeNode, previous: Option<&'static ScopeNode> },
}

impl Guard {
    /// Creates a guard that does nothing, for a scope that is not tracked.
    #[inline(always)]
    pub(super) const fn inert() -> Self {
        Self {
            #[cfg(feature = "record")]
            state: State::Inert,
            not_send: PhantomData,
        }
    }
}

#[cfg(feature = "record")]
impl Guard {
    /// Enters `node`, a child of the current scope.
    #[inline]
    pub(super) fn enter_node(node: &'static ScopeNode) -> Self {
        let previous = replace_current(Some(node));
        // The guard exists before the observer is called, so the scope is restored even if the observer panics.
        let guard = Self { state: State::Entered { node, previous }, not_send: PhantomData };
        observer::notify_entered(node);
        guard
    }

    /// Sets the thread's position without entering a scope.
    #[inline]
    pub(super) fn resume(to: Position) -> Self {
        let previous = Position { node: replace_current(to.node), account: current_account() };
        // A handle from outside all accounts does not change the thread's account.
        if !to.account.is_none() {
            set_account(to.account);
        }
        Self { state: State::Resumed { previous }, not_send: PhantomData }
    }

    fn leave(&self) {
        match self.state {
            State::Inert => {}
            State::Resumed { previous } => {
                set_account(previous.account);
                replace_current(previous.node);
            }
            State::Entered { node, previous } => {
                replace_current(previous);
                observer::notify_left(node);
            }
        }
    }
}

#[cfg(feature = "record")]
impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.state, State::Inert) {
            self.leave();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "record")]
        let is_active = !matches!(self.state, State::Inert);
        #[cfg(not(feature = "record"))]
        let is_active = false;
        f.debug_struct("Guard").field("active", &is_active).finish_non_exhaustive()
    }
}

/// Enters a scope by name. If scopes are turned off, this costs one relaxed load and a branch.
#[inline]
pub(super) fn enter(kind: ScopeKind, name: &str) -> Guard {
    #[cfg(feature = "record")]
    if switch::is_on(switch::SCOPES) {
        return enter_now(kind, name);
    }
    Guard::inert()
}

#[cfg(feature = "record")]
#[inline(never)]
fn enter_now(kind: ScopeKind, name: &str) -> Guard {
    Guard::enter_node(ScopeNode::child(current_node(), kind, name))
}
