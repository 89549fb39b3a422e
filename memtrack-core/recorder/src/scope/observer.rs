//! Notifies the tracker of the ends of scopes, and the log of operators of beginnings and ends. The tracker registers
//! itself once; guards and futures call [`entered`] and [`left`] for scopes that were really entered, never for one
//! that a panic unwinds through (the hook that would run after the operator does not run then) and never once scopes
//! are switched off again. Code that needs only the ends of root scopes registers with [`call_at_root_end`], and enables
//! scopes while nothing is monitored with [`keep_enabled`].

use super::nodes::ScopeNode;
use crate::events::operators;
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The notifications for the tracker. When a scope has ended, the thread's scope is the one around `node` again.
pub trait ScopeObserver: Sync {
    /// Called when an operator, a backward pass or an optimizer step ran to its end.
    fn operator_finished(&self, node: &'static ScopeNode);
    /// Called when the outermost module begins.
    fn root_entered(&self, node: &'static ScopeNode);
    /// Called when the outermost module ran to its end.
    fn root_left(&self, node: &'static ScopeNode);
}

/// The function called when a root scope has ended.
static AT_ROOTS: OnceLock<fn()> = OnceLock::new();

/// Registers a function to call at the end of each root scope, on its thread; returns false if there is one already.
pub fn call_at_root_end(call: fn()) -> bool {
    AT_ROOTS.set(call).is_ok()
}

/// Whether scopes are tracked also while nothing is monitored.
static KEPT_ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables or disables scopes while nothing is monitored.
pub fn keep_enabled(enabled: bool) {
    KEPT_ENABLED.store(enabled, Ordering::SeqCst);
    if enabled {
        switch::set(switch::SCOPES, true);
    } else if !switch::is_on(switch::EVENTS) {
        switch::set(switch::SCOPES, false);
    }
}

/// Returns the switch of scopes, if the end of monitoring turns it off.
pub(crate) fn switch_to_end() -> u32 {
    if KEPT_ENABLED.load(Ordering::SeqCst) { 0 } else { switch::SCOPES }
}

static OBSERVER: OnceLock<&'static dyn ScopeObserver> = OnceLock::new();

/// Registers the observer of all threads; returns false if there is one already.
pub fn observe(observer: &'static dyn ScopeObserver) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// Notes that `node` was entered.
#[inline]
pub(super) fn entered(node: &'static ScopeNode) {
    operators::entered(node.id);
    if node.kind == ScopeKind::Root
        && let Some(observer) = observer()
    {
        observer.root_entered(node);
    }
}

/// Notes that `node` was left, and that the scope before it is current again.
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
