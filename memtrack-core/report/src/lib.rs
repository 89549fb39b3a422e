//! Reports about snapshots: those of PyTorch's `_memory_viz.py`, in the same wording ([`viz`]), memtrack's own ([`analysis`]),
//! and the series of operators that PyTorch's `MemoryTracker` keeps ([`tracker`]).
//!
//! The modules:
//!
//! - [`analysis`]: `peak`, `at_peak`, `top`, `phases`, `summary`, `held`, `check`; `leaks`, `holds` (who holds the
//!   memory), `diff`, `ranks`; `lifetimes` and `attribution`, which most of them use; `estimate`: the errors of sums over
//!   samples; `ownership`: whose code a frame is.
//! - `viz`: PyTorch's texts; `tracker`: series, files and figures; `figures`: axes and canvas; `scrub`: snapshots with
//!   pseudonyms.
//!
//! **Why the features `all` and `compare`?** Without `all`, the package contains only the reports that a running
//! program produces about itself: rankings, summaries, the holders of memory. The comparisons of files (`diff`,
//! `ranks`, `check`) and `live_flame` require `compare`: few programs need them, and they made the build of a training
//! program 5 % longer.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.
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
