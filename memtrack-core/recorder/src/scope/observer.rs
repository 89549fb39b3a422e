//! Notifies the tracker when scopes end, and the log of operators when scopes begin and end. The tracker registers itself
//! once. Guards and futures call [`notify_entered`] and [`notify_left`] for scopes that were really entered. The
//! tracker is not notified of scopes through which a panic unwinds (as in PyTorch, where the hook after an operator
//! does not run in that case), nor after scopes have been switched off. Code that needs only the ends of root scopes
//! registers with [`call_at_root_end`], and enables scopes while nothing is monitored with [`keep_enabled`].

use super::nodes::ScopeNode;
use crate::events::operators;
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The notifications for the tracker. When the end of a scope is reported, the thread's scope is already the one that
/// encloses `node`.
pub trait ScopeObserver: Sync {
    /// Called when an operator, a backward pass or an optimizer step has ended.
    fn operator_finished(&self, node: &'static ScopeNode);
    /// Called when the outermost module begins.
    fn root_entered(&self, node: &'static ScopeNode);
    /// Called when the outermost module has ended.
    fn root_left(&self, node: &'static ScopeNode);
}

/// The function to call when a root scope has ended.
static AT_ROOTS: OnceLock<fn()> = OnceLock::new();

/// Registers a function to call at the end of each root scope, on that scope's thread. Returns `false` if one is
/// already registered.
pub fn call_at_root_end(call: fn()) -> bool {
    AT_ROOTS.set(call).is_ok()
}

/// Whether scopes are also tracked while nothing is monitored.
static KEEP_ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables or disables scopes while nothing is monitored.
pub fn keep_enabled(enabled: bool) {
    KEEP_ENABLED.store(enabled, Ordering::SeqCst);
    if enabled {
        switch::set(switch::SCOPES, true);
    } else if !switch::is_on(switch::EVENTS) {
        switch::set(switch::SCOPES, false);
    }
}

/// Returns the scope switches to turn off when monitoring ends: [`switch::SCOPES`], or none if scopes are kept enabled.
pub(crate) fn switch_to_turn_off() -> u32 {
    if KEEP_ENABLED.load(Ordering::SeqCst) { 0 } else { switch::SCOPES }
}

static OBSERVER: OnceLock<&'static dyn ScopeObserver> = OnceLock::new();

/// Registers the observer for all threads. Returns `false` if one is already registered.
pub fn observe(observer: &'static dyn ScopeObserver) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// Reports that `node` was entered.
#[inline]
pub(super) fn notify_entered(node: &'static ScopeNode) {
    operators::log_enter(node.id);
    if node.kind == ScopeKind::Root
        && let Some(observer) = observer()
    {
        observer.root_entered(node);
    }
}

/// Reports that `node` was left. The previous scope must already be current again.
#[inline]
pub(super) fn notify_left(node: &'static ScopeNode) {
    operators::log_leave(node.id);
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
