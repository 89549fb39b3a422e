//! Resolves return addresses to functions and lines. A program records raw addresses and the list of its loaded
//! binaries. Later, a [`Symbolizer`] resolves the addresses, possibly on another machine. It uses a binary only if the
//! [`build_id`] matches the recorded one.
//!
//! Modules:
//!
//! - `locate` finds the file of a recorded binary by its identity (`build_id`). `symbols` turns addresses into
//!   functions and lines.
//! - `names`, `demangle` and `qualify` produce readable function names and their full paths. `parts` finds the pieces of a
//!   split function.
//!
//! This package is part of `memtrack-core`, which re-exports its public API. Depend on `memtrack-core` instead.

pub mod build_id;
mod demangle;
mod locate;
pub mod names;
mod parts;
mod qualify;
mod symbols;

pub use memtrack_model::Frame;
pub use parts::parts_of_function;
pub use symbols::Symbolizer;
