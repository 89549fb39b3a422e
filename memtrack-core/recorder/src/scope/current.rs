//! The current scope and account of a thread. Every hook that records an event reads [`current_id`].

use super::nodes::{ScopeNode, id_of, is_same};
use crate::accounts::Membership;
use crate::events::note_scope_change;
use memtrack_model::event::ScopeId;
use std::cell::Cell;

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
pub(super) fn replace_current(node: Option<&'static ScopeNode>) -> Option<&'static ScopeNode> {
    let previous = CURRENT.replace(node);
    if !is_same(previous, node) {
        note_scope_change(id_of(node));
    }
    previous
}

/// Sets the thread's account.
#[inline]
pub(super) fn set_account(account: Membership) {
    ACCOUNT.set(account);
}
