//! The recorder: the running scopes ([`scope`]), the host's heap ([`host`]), stacks ([`stack`]), and the ring and
//! tables that events go to ([`events`]). One package, because the path of an event depends on inlining.
//!
//! This package is part of `memtrack-core`, which re-exports what programs use; depend on `memtrack-core` instead.

pub mod accounts;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
pub mod environment;
pub mod events;
mod guarded_file;
pub mod host;
pub mod internal_bytes;
pub mod message;
pub mod operators;
pub mod reentry;
pub mod scope;
mod shared_map;
pub mod signals;
pub mod stack;
pub mod switch;
pub mod terminal;
mod zeroed;

/// The name under which `memtrack-core` publishes it.
pub use events as recorder;
