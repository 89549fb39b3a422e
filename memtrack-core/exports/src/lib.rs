//! A snapshot for other tools: profiles, flame graphs and tables that they open. These formats are not read back;
//! formats that memtrack also reads are in `memtrack-formats`. `registry` has a row for each export, and names both kinds.
//!
//! The modules:
//!
//! - `registry`: one row for each export; `target`: which format a file's name selects.
//! - `usage` adds up blocks by origin, `stacks` names them: for `pprof`, `speedscope`, `collapsed`; `blocks` is CSV,
//!   `parquet` the events.
//! - `course`: what happened when: for `perfetto` and `firefox`.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

mod blocks;
mod collapsed;
mod course;
mod firefox;
#[cfg(test)]
mod fixtures;
mod parquet;
mod perfetto;
mod pprof;
mod registry;
mod speedscope;
mod stacks;
mod target;
mod usage;

pub use registry::{EXPORTS, Export, ExportOptions, Packing};
pub use target::{Target, target_named, target_of, targets_listed};
