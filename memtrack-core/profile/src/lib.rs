//! What device memory is for, over time: PyTorch's memory profile for PyTorch's traces and for Rust programs.
//!
//! An operator trace says which operators ran on which tensors and what they allocated. The analysis gives each version of
//! each tensor a [`Category`].
//!
//! This package is a part of `memtrack-core`, which re-exports what programs use; depend on that.

pub mod advice;
pub mod analysis;
pub mod answer;
mod category;
mod curve;
pub mod export;
#[cfg(feature = "plot")]
pub mod figure;
mod interner;
pub mod modules;
pub mod optrace;
mod phases;
pub mod pieces;
pub mod places;
pub mod reading;
pub mod recorded;
mod repairs;
pub mod report;
pub mod series;
pub mod snapshot;
#[cfg(test)]
mod tests;

pub use category::Category;
pub use repairs::{Repair, Repairs};
