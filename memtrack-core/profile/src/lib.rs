//! Determines what device memory is used for over time. This is PyTorch's memory profile, extended to traces
//! of Rust programs.
//!
//! An operator trace records the operators that ran, their tensors and their allocations. From it, the
//! analysis assigns a [`Category`] to each version of each tensor.
//!
//! Modules:
//!
//! - `optrace` reads and writes operator traces. `recorded` converts a recording to a trace, and applies the
//!   trace's categories to the recording's events. `repairs` counts the repairs made to a damaged trace.
//! - `analysis` implements PyTorch's memory profile, with one file per step. `category` defines its result.
//! - `pieces`, `series`, `curve`, `places`, `names` and `interner` are the building blocks of the
//!   reports: pieces of memory, sums over time, and the places of the program.
//! - `report`, `export`, `figure` and `snapshot` produce the reports and exports. `modules` reports
//!   memory per module, and `advice` suggests changes that would lower the peak.
//! - `reading` infers categories without a trace, using stacks, scopes and the order of events.
//!
//! This package is part of `memtrack-core`, which re-exports its public API. Depend on `memtrack-core`
//! instead.

#[cfg(feature = "all")]
pub mod advice;
pub mod analysis;
mod category;
#[cfg(feature = "all")]
mod curve;
#[cfg(feature = "all")]
pub mod export;
#[cfg(all(feature = "all", feature = "plot"))]
pub mod figure;
mod interner;
#[cfg(feature = "all")]
pub mod modules;
#[cfg(feature = "all")]
mod names;
pub mod optrace;
#[cfg(feature = "all")]
pub mod pieces;
#[cfg(feature = "all")]
pub mod places;
#[cfg(feature = "all")]
pub mod reading;
pub mod recorded;
mod repairs;
#[cfg(feature = "all")]
pub mod report;
#[cfg(feature = "all")]
pub mod series;
#[cfg(feature = "all")]
pub mod snapshot;
#[cfg(all(test, feature = "all"))]
mod tests;

pub use category::Category;
pub use repairs::{Repair, Repairs};
