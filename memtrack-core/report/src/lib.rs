//! Reports about snapshots: those of PyTorch's `_memory_viz.py`, in the same wording ([`viz`]), memtrack's own ([`analysis`]),
//! and the series of operators that PyTorch's `MemoryTracker` keeps ([`tracker`]).
//!
//! This package is part of `memtrack-core`, which re-exports what programs use; depend on `memtrack-core` instead.
// Without `all`, some helpers are used only by reports that are not compiled.
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
