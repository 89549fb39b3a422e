//! Analyses of a [`Snapshot`](memtrack_model::snapshot::Snapshot): the height of the peak ([`peak`]) and the memory
//! that was live then ([`at_peak`]), its operators and stacks ([`top`], [`attribution`]) and phases ([`phases`]); the
//! memory that a device holds at the end ([`held`], [`summary`]), its limits ([`check`]), and leaks ([`leaks`]). They
//! do not depend on where the snapshot comes from.
//!
//! **Allocated or requested?** *Allocated* is rounded, as in PyTorch's statistics; *requested* is the sum of the sizes
//! in a trace. The peak of `summary`, `peak` and `check`, and all of `top`, are requested. On a heap, whose rounding is
//! unknown, both are the same. Reports that reproduce PyTorch's output keep PyTorch's terms.

pub mod at_peak;
pub mod attribution;
mod change;
#[cfg(feature = "compare")]
pub mod check;
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
#[cfg(feature = "compare")]
pub mod ranks;
pub mod reserved;
pub mod summary;
pub mod top;
#[doc(hidden)]
pub mod torch_stacks;
pub mod trim;
