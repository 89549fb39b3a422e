//! Reports on snapshots: those of PyTorch's `_memory_viz.py`, in the same wording ([`viz`]), memtrack's own
//! ([`analysis`]), and the operator series that PyTorch's `MemoryTracker` keeps ([`tracker`]).
//!
//! This package has the following modules:
//!
//! - [`analysis`]: the reports `peak`, `at_peak`, `top`, `phases`, `summary`, `held`, `check`, `leaks`, `holds` (who
//!   holds the memory), `diff` and `ranks`; `lifetimes` and `attribution`, which most of them use; `estimate`, for the
//!   errors of sums over samples; and `ownership`, which determines whether a frame is in the user's code.
//! - `viz`: PyTorch's texts.
//! - `tracker`: operator series, with their files and figures.
//! - `figures`: axes and a canvas.
//! - `scrub`: snapshots with pseudonyms.
//! - `terminal`: the width of reports on standard output.
//!
//! **Why the features `all` and `compare`?** Without `all`, the package contains only the reports that a running
//! program produces about itself: rankings, summaries and the holders of memory. The comparisons of files (`diff`,
//! `ranks`, `check`) and `live_flame` require `compare`, because few programs need them and they made a training
//! program take 5 % longer to build.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.
// Without `all`, some helpers are used only by reports that are not compiled.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

pub mod analysis;
#[cfg(feature = "plot")]
pub mod figures;
#[cfg(feature = "scrub")]
pub mod scrub;
pub mod terminal;
#[cfg(feature = "all")]
pub mod tracker;
#[cfg(feature = "all")]
pub mod viz;
