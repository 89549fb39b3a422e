//! The current scope of a thread, and the guard that sets and restores it. All code that enters a scope calls this
//! module, and every hook that records an event reads [`current_id`]. The invariant is that once a guard is dropped,
//! however its block is left, the thread's previous scope is current again.

use super::nodes::{ScopeNode, id_of, is_same};
use super::observer;
use crate::accounts::Membership;
use crate::events::note_scope_change;
use crate::switch;
use memtrack_model::ScopePosition;
use memtrack_model::event::ScopeId;
use memtrack_model::snapshot::ScopeKind;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    /// The thread's scope, or `None` outside all scopes. It has a constant initializer and no destructor, so that an
    /// allocator can read it even while the thread is ending.
    static CURRENT: Cell<Option<&'static ScopeNode>> = const { Cell::new(None) };
    /// The thread's account. Scope handles carry it to other threads. Scope nodes do not contain it: nodes are never
    /// freed, and each account would need its own.
    static ACCOUNT: Cell<Membership> = const { Cell::new(Membership::NONE) };
}

/// The position of a thread or a future: its scope, and the account in which its allocations are counted.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) node: Option<&'static ScopeNode>,
    pub(super) account: Membership,
}

/// Returns the thread's position.
#[inline]
pub(super) fn position() -> Position {
    Position { node: CURRENT.get(), account: ACCOUNT.get() }
}

/// Returns the thread's account.
#[inline]
pub(crate) fn current_account() -> Membership {
    ACCOUNT.get()
}

/// Returns the id of the thread's scope. Hooks call this. It costs one load of a thread-local and one of the node.
#[inline]
pub fn current_id() -> ScopeId {
    id_of(CURRENT.get())
}

/// Returns the thread's scope, or `None` outside all scopes.
#[inline]
pub fn current_node() -> Option<&'static ScopeNode> {
    CURRENT.get()
}

/// Sets the thread's scope and returns the previous one.
#[inline]
fn replace_current(node: Option<&'static ScopeNode>) -> Option<&'static ScopeNode> {
    let previous = CURRENT.replace(node);
    if !is_same(previous, node) {
        note_scope_change(id_of(node));
    }
    previous
}

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
    ScopeHandle { position: position() }
}

/// A handle to a scope, which can be passed to another thread or task. See [`current`].
#[derive(Clone, Copy)]
pub struct ScopeHandle {
    pub(super) position: Position,
}

impl ScopeHandle {
    /// Returns a handle to the calling thread's scope, but in `account`.
    pub(crate) fn in_account(account: Membership) -> Self {
        Self { position: Position { node: CURRENT.get(), account } }
    }

    /// Makes the scope current on this thread until the guard is dropped. The operator or root that the scope belongs to
    /// does not end with this guard, but with the guard that began it.
    #[inline]
    pub fn enter(self) -> Guard {
        if switch::is_on(switch::SCOPES | switch::ACCOUNTS) {
            Guard::resume(self.position)
        } else {
            Guard::inert()
        }
    }

    /// Returns the scope's id in recordings.
    #[inline]
    pub fn id(self) -> ScopeId {
        id_of(self.position.node)
    }

    /// Returns the scope's position, which consists of modules, phase and operator. Visits all enclosing scopes, so it
    /// is meant for logs.
    pub fn place(self) -> ScopePosition<'static> {
        self.position.node.map(ScopeNode::place).unwrap_or_default()
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
    state: State,
    /// Keeps the guard on this thread, because the scope that it restores belongs to this thread.
    not_send: PhantomData<*const ()>,
}

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
        Self { state: State::Inert, not_send: PhantomData }
    }

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
        let previous = Position { node: replace_current(to.node), account: ACCOUNT.get() };
        // A handle from outside all accounts does not change the thread's account.
        if !to.account.is_none() {
            ACCOUNT.set(to.account);
        }
        Self { state: State::Resumed { previous }, not_send: PhantomData }
    }

    fn leave(&self) {
        match self.state {
            State::Inert => {}
            State::Resumed { previous } => {
                ACCOUNT.set(previous.account);
                replace_current(previous.node);
            }
            State::Entered { node, previous } => {
                replace_current(previous);
                observer::notify_left(node);
            }
        }
    }
}

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
        f.debug_struct("Guard").field("active", &!matches!(self.state, State::Inert)).finish_non_exhaustive()
    }
}

/// Enters a scope by name. If scopes are turned off, this costs one relaxed load and a branch.
#[inline]
pub(super) fn enter(kind: ScopeKind, name: &str) -> Guard {
    if switch::is_on(switch::SCOPES) { enter_now(kind, name) } else { Guard::inert() }
}

#[inline(never)]
fn enter_now(kind: ScopeKind, name: &str) -> Guard {
    Guard::enter_node(ScopeNode::child(CURRENT.get(), kind, name))
}
