//! Scopes: the operator, module and phase that every event is attributed to. Programs enter scopes with
//! `#[track_memory]` or, where an attribute cannot be placed, with the guards in this module; the recorder writes the
//! ID of the current scope into each event. The previous scope is always restored when a guard is dropped, and a future
//! carries its scope between threads.
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
//! **Cost.** While nothing is being monitored, entering a scope is one relaxed load and a branch. Otherwise, entering
//! an annotated function costs a lookup in a small per-thread cache, and creating a guard with a name known only at run
//! time costs hashing the name. memtrack keeps the name of every scope permanently, so name scopes after code, not
//! after data.
//!
//! **Limits.** About 61,000 scopes and 32,768 names are kept, with at most 4 MiB of names. Beyond that, scopes are
//! merged into one scope "(other)" of their kind inside the enclosing scope. Beyond 128 levels, a new scope becomes a
//! sibling of the innermost one instead of its child. An operator directly inside itself is a single scope. A recording
//! contains the number of entries into scopes beyond these limits.

#[doc(inline)]
pub use memtrack_recorder::scope::{
    Guard, Phase, ScopeHandle, ScopeKind, ScopePosition, ScopeStep, ScopedFuture, backward, backward_named,
    current, future, module, operator, optimizer, optimizer_named, root,
};
