//! The blocks of a snapshot, below all reports: when each was allocated and freed ([`lifetimes`], [`frees`], [`origin`]), what was
//! live at a moment ([`moment`], [`net`], [`peak`]), what was reserved ([`reserved`], [`held`]), and the errors of sums over
//! samples ([`estimate`], [`change`]).
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod change;
pub mod device_blocks;
pub mod estimate;
pub mod frees;
pub mod held;
pub mod lifetimes;
pub mod moment;
pub mod net;
pub mod not_recorded;
pub mod origin;
pub mod peak;
pub mod reserved;
