//! Who is running: the operator, module and phase that every event is attributed to. Programs enter scopes with
//! [`#[track_memory]`](crate::track_memory) or, where an attribute cannot go, with the guards of this module; the
//! recorder writes the id of the current scope into each event. A thread's scope is always restored when a block is
//! left, and follows a future between threads.
//!
//! ```
//! use memtrack_core::scope;
//!
//! fn forward(layers: &[&str]) {
//!     let _net = scope::root("Net");
//!     for layer in layers {
//!         let _layer = scope::module(layer);
//!         let _op = scope::operator("matmul"); // `{layer}.forward.matmul`
//!     }
//! }
//! forward(&["encoder", "decoder"]);
//! ```
//!
//! **Cost.** While nothing is monitored, entering is one relaxed load and a branch. While it is, entering an annotated
//! function costs a look into a small per-thread cache; a guard by name hashes the name. The first time a scope is
//! entered, memtrack keeps its name for good: name scopes after code, not after data.
//!
//! **Bounds.** Some 61,000 scopes and 32,768 names are told apart, with at most 4 MiB of names; what comes then goes into
//! one scope "(other)" of its kind inside the scope around it. Of scopes nested more than 128 deep the innermost one stays,
//! and an operator that calls itself is one scope. A recording says how often scopes were folded so.

mod path;

#[cfg(feature = "record")]
mod future;
#[cfg(feature = "record")]
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
#[cfg(feature = "record")]
mod site;
#[cfg(all(test, feature = "record"))]
pub(crate) mod testing;
#[cfg(all(test, feature = "record"))]
mod tests;

#[cfg(not(feature = "record"))]
mod off;
#[cfg(not(feature = "record"))]
use off as guard;

#[cfg(not(feature = "record"))]
pub use off::{Guard, ScopeHandle, ScopedFuture, current};
#[cfg(feature = "record")]
pub use {
    future::ScopedFuture,
    guard::{Guard, ScopeHandle, current},
};

#[cfg(feature = "record")]
#[allow(unused_imports, reason = "the recorder's and the tracker's side of scopes")]
pub(crate) use {
    guard::{current_id, current_node},
    nodes::{SCOPE_IDS, ScopeNode, folded, forget_folded, ids, nodes_after, outwards, table},
    observer::{ScopeObserver, observe},
};

pub use crate::snapshot::ScopeKind;
pub use path::{Phase, Place, ScopeStep};

use std::borrow::Cow;

/// Enters an operator: the unit of the tracker's series.
#[inline]
pub fn operator(name: &str) -> Guard {
    guard::enter(ScopeKind::Operator, name)
}

/// Enters a module: its name becomes part of the path.
#[inline]
pub fn module(name: &str) -> Guard {
    guard::enter(ScopeKind::Module, name)
}

/// Enters the outermost module: marks `fw_start` here and `fw_bw_boundary` at its end. Its name is not part of the
/// path. Inside another root it is a module.
#[inline]
pub fn root(name: &str) -> Guard {
    guard::enter(ScopeKind::Root, name)
}

/// Enters the backward pass.
#[inline]
pub fn backward() -> Guard {
    backward_named("backward")
}

/// Enters the backward pass under a name of its own, where there are several.
#[inline]
pub fn backward_named(name: &str) -> Guard {
    guard::enter(ScopeKind::Backward, name)
}

/// Enters the optimizer step.
#[inline]
pub fn optimizer() -> Guard {
    optimizer_named("optimizer")
}

/// Enters the optimizer step under a name of its own, where there are several.
#[inline]
pub fn optimizer_named(name: &str) -> Guard {
    guard::enter(ScopeKind::Optimizer, name)
}

/// Runs `future` in a scope that follows it from thread to thread. The scope lies inside the one that is current at
/// the first poll; a spawned task starts outside everything, so wrap it with [`ScopeHandle::future`].
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

/// What the expansion of `#[track_memory]` calls. Not API: it changes without notice.
#[doc(hidden)]
pub mod __private {
    #[cfg(not(feature = "record"))]
    pub use super::off::Site;
    #[cfg(feature = "record")]
    pub use super::site::Site;
    pub use crate::snapshot::ScopeKind;

    pub use crate::__memtrack_async_scope as async_scope;

    /// Stands where an annotated async function's output type must be known; never called.
    pub fn output<T>() -> T {
        unreachable!("the branch is never taken")
    }
}

/// The body of an annotated async function, in a future that carries its scope.
#[cfg(feature = "record")]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_async_scope {
    ([$($enter:tt)*] [$($keywords:tt)*] $body:tt) => {
        $($enter)* ($($keywords)* $body).await
    };
}

/// The body of an annotated async function: without the recorder it is itself, since even a wrapper that does nothing
/// would keep the parameters twice.
#[cfg(not(feature = "record"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_async_scope {
    ([$($enter:tt)*] [$($keywords:tt)*] $body:tt) => {
        $body
    };
}
