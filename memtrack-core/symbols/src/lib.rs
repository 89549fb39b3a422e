//! From return addresses to functions and lines. A program records raw addresses and the list of its loaded binaries;
//! the reader of the recording, later or on another machine, names them with a [`Symbolizer`], which never uses a
//! binary other than the recorded one ([`build_id`]).
//!
//! The modules:
//!
//! - `locate` finds the file of a recorded binary by its identity (`build_id`); `symbols` turns addresses into functions
//!   and lines.
//! - `names`, `demangle`, `qualify`: function names as people read them, and their full paths.
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
