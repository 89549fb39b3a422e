//! Tells the tracker what ends, and the log of operators what begins and ends. The tracker registers itself once; guards and futures call [`entered`] and [`left`] for
//! scopes that were really entered, never for one a panic unwinds through (the hook that would run after the
//! operator does not run then) and never once scopes are switched off again. Who only wants the ends of root scopes says so
//! with [`roots_end_at`], and has scopes followed while nothing is monitored with [`follow`].

use super::nodes::ScopeNode;
use crate::recorder::operators;
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Who wants to know that a root scope has ended.
static AT_ROOTS: OnceLock<fn()> = OnceLock::new();

/// `call` is made at the end of each root scope, on its thread, from now on; false when there is one already.
pub fn roots_end_at(call: fn()) -> bool {
    AT_ROOTS.set(call).is_ok()
}

/// Whether scopes are followed also while nothing is monitored.
static FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Has scopes followed also while nothing is monitored, or no more.
pub fn follow(follow: bool) {
    FOLLOWED.store(follow, Ordering::SeqCst);
    if follow {
        switch::set(switch::SCOPES, true);
    } else if !switch::is_on(switch::EVENTS) {
        switch::set(switch::SCOPES, false);
    }
}

/// The switch of scopes, if the end of monitoring ends it.
pub(crate) fn scopes_of_monitoring() -> u32 {
    if FOLLOWED.load(Ordering::SeqCst) { 0 } else { switch::SCOPES }
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
    if node.kind == ScopeKind::Root
        && let Some(call) = AT_ROOTS.get()
        && !thread::panicking()
    {
        call();
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
