//! Resolves return addresses to functions and lines. A program records raw addresses and the list of its loaded
//! binaries; later, possibly on another machine, a [`Symbolizer`] resolves the addresses. It uses a binary only if its
//! [`build_id`] is the recorded one.
//!
//! The modules:
//!
//! - `locate` finds the file of a recorded binary by its identity (`build_id`); `symbols` turns addresses into functions
//!   and lines.
//! - `names`, `demangle`, `qualify`: readable function names and their full paths.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod build_id;
mod demangle;
mod locate;
pub mod names;
mod qualify;
mod symbols;

pub use memtrack_model::Frame;
pub use symbols::Symbolizer;
