//! The purpose of device memory over time: PyTorch's memory profile, for traces of PyTorch and of Rust
//! programs.
//!
//! An operator trace records the operators that ran, their tensors and their allocations. The analysis gives
//! each version of each tensor a [`Category`].
//!
//! The modules:
//!
//! - `optrace`: reads and writes operator traces; `recorded`: converts a recording to a trace, and the
//!   trace's categories back to the recording's events; `repairs`: counts the repairs of a damaged trace.
//! - `analysis`: PyTorch's memory profile, one file per step; `category`: the result.
//! - `pieces`, `series`, `curve`, `places`, `phases`, `names`, `interner`: what the reports are built from:
//!   pieces of memory, sums over time, and the places and phases of the program.
//! - `report`, `export`, `figure`, `snapshot`, `answer`: the reports and exports; `modules`: memory per
//!   module; `advice`: changes that would lower the peak.
//! - `reading`: infers categories without a trace, from stacks, scopes and the order of events.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

#[cfg(feature = "all")]
pub mod advice;
pub mod analysis;
#[cfg(feature = "all")]
pub mod answer;
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
mod phases;
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
