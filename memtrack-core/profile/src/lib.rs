//! The purpose of device memory over time: PyTorch's memory profile for PyTorch's traces and for Rust programs.
//!
//! An operator trace records the operators that ran, their tensors and their allocations. The analysis gives
//! each version of each tensor a [`Category`].
//!
//! The modules:
//!
//! - `optrace`: operator traces as files; `recorded`: a recording as a trace, and back; `repairs`: the repairs
//!   of a damaged trace.
//! - `analysis`: PyTorch's memory profile, one file per step; `category`: the result.
//! - `pieces`, `series`, `curve`, `places`, `phases`, `names`, `interner`: the parts of answers: memory piece
//!   by piece, sums over time, places and phases of the program.
//! - `report`, `export`, `figure`, `snapshot`, `answer`: the answers; `modules`: memory module by module;
//!   `advice`: changes that would lower the peak.
//! - `reading`: categories without a trace, from stacks, scopes and the order of events.
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
