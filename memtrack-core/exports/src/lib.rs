//! Exports snapshots for other tools, as profiles, flame graphs and tables. memtrack does not read these formats.
//! Formats that it also reads are in `memtrack-formats`.
//!
//! The modules:
//!
//! - `registry` has one row for each export, and `target` determines the format that a file name selects. `options`
//!   are what every export receives.
//! - `usage` adds up blocks by origin, `stacks` looks up the functions in their stacks, and `labels` names what was
//!   running, for `pprof`, `speedscope`, `collapsed`, and `blocks`, which writes CSV. `parquet` writes the events.
//! - `heap`, in `pprof`, has the heap profile of a running program, for HTTP endpoints.
//! - `timeline` tracks memory and scopes over time, for `perfetto` and `firefox`.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

mod blocks;
mod collapsed;
mod firefox;
#[cfg(test)]
mod fixtures;
mod labels;
mod options;
mod parquet;
mod perfetto;
mod pprof;
mod registry;
mod speedscope;
mod stacks;
mod target;
mod timeline;
mod usage;

pub use options::ExportOptions;
pub use pprof::heap;
pub use registry::{EXPORTS, Export, Packing};
pub use target::{Target, target_named, target_of, targets_listed};
