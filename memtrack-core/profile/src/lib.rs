//! What device memory is for, over time: PyTorch's memory profile for PyTorch's traces and for Rust programs.
//!
//! An operator trace records which operators ran on which tensors and what they allocated. The analysis gives each version of
//! each tensor a [`Category`].
//!
//! This package is part of `memtrack-core`, which re-exports what programs use; depend on `memtrack-core` instead.

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
