//! Analyses of a [`Snapshot`](memtrack_model::snapshot::Snapshot). They cover the height of the peak ([`peak`]) and the
//! memory that was live then ([`at_peak`]), its operators and stacks ([`top`], [`attribution`]) and its phases
//! ([`phases`]), as well as the memory that a device holds at the end ([`held`], [`summary`]), limits on it
//! ([`check`]), and leaks ([`leaks`]). None of them depends on where the snapshot came from.
//!
//! **Allocated or requested?** *Allocated* sizes are rounded, as in PyTorch's statistics; *requested* sizes are the
//! ones in the trace, unrounded. `summary`, `peak` and `check` report the peak in requested bytes, and `top` uses
//! requested bytes throughout. On a heap the rounding is unknown, so both are the same. Reports that reproduce
//! PyTorch's output keep PyTorch's terms.

pub mod at_peak;
pub mod attribution;
mod change;
#[cfg(feature = "compare")]
pub mod check;
pub mod device_blocks;
#[cfg(feature = "compare")]
pub mod diff;
pub mod estimate;
pub mod framework_operators;
mod frees;
pub mod held;
pub mod holds;
pub mod layout;
#[cfg(feature = "all")]
pub mod leaks;
pub mod lifetimes;
#[cfg(feature = "compare")]
pub mod live_flame;
pub mod moment;
pub mod net;
pub mod not_recorded;
#[cfg(feature = "all")]
pub mod origin;
pub mod ownership;
pub mod peak;
#[cfg(feature = "all")]
pub mod phases;
pub mod process_memory;
#[cfg(feature = "compare")]
pub mod processes;
#[cfg(feature = "compare")]
pub mod ranks;
pub mod reserved;
pub mod summary;
pub mod top;
#[doc(hidden)]
pub mod torch_stacks;
pub mod trim;
