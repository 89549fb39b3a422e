//! memtrack's reports on a snapshot: the memory that was live at the peak ([`at_peak`]), its operators and stacks ([`top`]), its
//! phases ([`phases`]), the memory that a device holds at the end ([`summary`]), who holds it ([`holds`]), limits on it (`check`),
//! leaks ([`leaks`]), differences (`diff`) and the ranks of a job (`ranks`). None of them depends on where the snapshot came
//! from. What they are made of is below: `memtrack-frames` judges functions, `memtrack-blocks` follows blocks.
//!
//! **Allocated or requested?** *Allocated* sizes are rounded, as in PyTorch's statistics; *requested* sizes are the
//! ones in the trace, unrounded. `summary`, `peak` and `check` report the peak in requested bytes, and `top` uses
//! requested bytes throughout. On a heap the rounding is unknown, so both are the same. Reports that reproduce
//! PyTorch's output keep PyTorch's terms.
//!
//! **Why the features `all` and `compare`?** Without `all`, the package contains only the reports that a running
//! program produces about itself: rankings, summaries and the holders of memory. The comparisons of files (`diff`,
//! `ranks`, `check`) and `live_flame` require `compare`, because few programs need them and they made a training
//! program take 5 % longer to build.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.
// Without `all`, some helpers are used only by reports that are not compiled.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

pub mod at_peak;
#[cfg(feature = "compare")]
pub mod check;
#[cfg(feature = "compare")]
pub mod diff;
pub mod holds;
pub mod layout;
#[cfg(feature = "all")]
pub mod leaks;
#[cfg(feature = "compare")]
pub mod live_flame;
#[cfg(feature = "all")]
pub mod phases;
pub mod process_memory;
#[cfg(feature = "compare")]
pub mod processes;
#[cfg(feature = "compare")]
pub mod ranks;
#[cfg(feature = "all")]
pub mod resident;
#[cfg(feature = "compare")]
pub mod sizes;
pub mod summary;
#[cfg(feature = "all")]
pub mod tasks;
pub mod terminal;
pub mod top;
