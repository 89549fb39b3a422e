//! Reports about snapshots: those of PyTorch's `_memory_viz.py`, in its words ([`viz`]), memtrack's own ([`analysis`]),
//! and the series of operators that its `MemoryTracker` keeps ([`tracker`]).
//!
//! This package is a part of `memtrack-core`, which re-exports what programs use; depend on that.
// What else only reports use that are not there.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

pub mod analysis;
#[cfg(feature = "plot")]
pub mod figures;
#[cfg(feature = "scrub")]
pub mod scrub;
#[cfg(feature = "all")]
pub mod tracker;
#[cfg(feature = "all")]
pub mod viz;
