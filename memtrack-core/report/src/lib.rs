//! What a snapshot says: PyTorch's own answers in its words ([`viz`]), memtrack's ([`analysis`]), and the series of
//! operators that its `MemoryTracker` keeps ([`tracker`]).
//!
//! This package is a part of `memtrack-core`, which re-exports what programs use; depend on that.

pub mod analysis;
pub mod tracker;
pub mod viz;
