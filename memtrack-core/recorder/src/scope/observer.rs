//! Tells the tracker what ends, and the log of operators what begins and ends. The tracker registers itself once; guards and futures call [`entered`] and [`left`] for
//! scopes that were really entered, never for one a panic unwinds through (the hook that would run after the
//! operator does not run then) and never once scopes are switched off again.

use super::nodes::ScopeNode;
use crate::recorder::operators;
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use std::sync::OnceLock;
use std::thread;

/// What the tracker wants to hear. The thread's scope is the one around `node` again when something has ended.
pub trait ScopeObserver: Sync {
    /// An operator, a backward pass or an optimizer step ran to its end.
    fn operator_finished(&self, node: &'static ScopeNode);
    /// The outermost module begins.
    fn root_entered(&self, node: &'static ScopeNode);
    /// The outermost module ran to its end.
    fn root_left(&self, node: &'static ScopeNode);
}

static OBSERVER: OnceLock<&'static dyn ScopeObserver> = OnceLock::new();

/// Registers the observer of all threads; false when there is one already.
pub fn observe(observer: &'static dyn ScopeObserver) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// `node` was entered.
#[inline]
pub(super) fn entered(node: &'static ScopeNode) {
    operators::entered(node.id);
    if node.kind == ScopeKind::Root
        && let Some(observer) = observer()
    {
        observer.root_entered(node);
    }
}

/// `node` was left, and the scope before it is current again.
#[inline]
pub(super) fn left(node: &'static ScopeNode) {
    operators::left(node.id);
    if node.kind == ScopeKind::Module {
        return;
    }
    if let Some(observer) = observer()
        && switch::is_on(switch::SCOPES)
        && !thread::panicking()
    {
        match node.kind {
            ScopeKind::Root => observer.root_left(node),
            _ => observer.operator_finished(node),
        }
    }
}

#[inline]
fn observer() -> Option<&'static dyn ScopeObserver> {
    #[cfg(test)]
    if let Some(observer) = super::testing::observer_of_this_thread() {
        return Some(observer);
    }
    OBSERVER.get().copied()
}
