//! The open scopes: the operator, module and phase that each event is attributed to. The recorder writes the current
//! scope's id into each event. `memtrack_core::scope` documents the functions for programs, their cost and their bounds.

#[cfg(feature = "record")]
mod current;
mod future;
mod guard;
#[cfg(feature = "record")]
mod link;
#[cfg(feature = "record")]
mod names;
#[cfg(feature = "record")]
mod nodes;
#[cfg(feature = "record")]
mod observer;
#[cfg(feature = "record")]
mod set;
mod site;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use {
    future::ScopedFuture,
    guard::{Guard, ScopeHandle, current},
};

#[cfg(feature = "record")]
#[allow(unused_imports, reason = "the recorder's and the tracker's side of scopes")]
pub use {
    current::{current_id, current_node},
    nodes::{SCOPE_IDS, ScopeNode, folded, ids, node_of, nodes_after, outwards, reset_folded, table},
    observer::{ScopeObserver, call_at_root_end, keep_enabled, observe},
};

#[cfg(feature = "record")]
pub(crate) use {
    current::current_account,
    link::{Link, empty_links},
    names::intern_name,
    observer::switch_to_turn_off,
    set::Set,
};

#[cfg(test)]
pub(crate) use nodes::MAX_BYTES;
#[cfg(feature = "record")]
pub(crate) use nodes::log_all;

pub use memtrack_model::snapshot::ScopeKind;
pub use memtrack_model::{Phase, ScopePosition, ScopeStep};
#[doc(hidden)]
pub use site::Site;

use std::borrow::Cow;

/// Enters an operator, which is the unit of the tracker's series.
#[inline]
pub fn operator(name: &str) -> Guard {
    guard::enter(ScopeKind::Operator, name)
}

/// Enters a module, whose name becomes part of the path.
#[inline]
pub fn module(name: &str) -> Guard {
    guard::enter(ScopeKind::Module, name)
}

/// Enters the outermost module, which marks `fw_start` when it begins and `fw_bw_boundary` when it ends. Its name is
/// not part of the path. Inside another root, it counts as a module.
#[inline]
pub fn root(name: &str) -> Guard {
    guard::enter(ScopeKind::Root, name)
}

/// Enters the backward pass.
#[inline]
pub fn backward() -> Guard {
    backward_named("backward")
}

/// Enters a backward pass under the given name, for programs that have several.
#[inline]
pub fn backward_named(name: &str) -> Guard {
    guard::enter(ScopeKind::Backward, name)
}

/// Enters the optimizer step.
#[inline]
pub fn optimizer() -> Guard {
    optimizer_named("optimizer")
}

/// Enters an optimizer step under the given name, for programs that have several.
#[inline]
pub fn optimizer_named(name: &str) -> Guard {
    guard::enter(ScopeKind::Optimizer, name)
}

/// Runs `future` in a scope that follows it from thread to thread. The scope's parent is the scope that is current at
/// the first poll. A spawned task starts outside all scopes, so wrap it with [`ScopeHandle::future`].
///
/// ```
/// use memtrack_core::scope::{self, ScopeKind};
///
/// # async fn read() {}
/// async fn load() {
///     scope::future(ScopeKind::Operator, "read", read()).await;
/// }
/// ```
#[inline]
pub fn future<F: Future>(kind: ScopeKind, name: impl Into<Cow<'static, str>>, future: F) -> ScopedFuture<F> {
    ScopedFuture::named(kind, name.into(), future)
}
