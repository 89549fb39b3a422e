//! The recorder: the open scopes ([`scope`]), the host heap ([`host`]), stacks ([`stack`]), and the ring and tables
//! that store events ([`events`]). They share one package because the hot path depends on inlining.
//!
//! The modules:
//!
//! - `switch`: the word that every hook reads first; `reentry`: keeps memtrack's own allocations out of the recording.
//! - `host`: the global allocator, budget and sampler; `scope`: the open scopes; `stack`: capture, interning
//!   and loaded binaries.
//! - `events`: the hot path (`hooks`), each thread's state, chunks, the ring, the live table, order and clock; sessions
//!   and how they end; snapshots (`collect`, `merge`); streams; forks; segments and driver memory.
//! - `accounts`: exact sums for tests with limits; `operators`: the reports of programs about their operators.
//! - `shared_map`: a dashmap whose locks are only tried, never waited for; `zeroed`: tables that begin as zeros;
//!   `internal_bytes`: memtrack's own memory.
//! - `mapped`: memory that a program under `memtrack run` maps itself.
//! - `python`: the Python frames of stacks, under `memtrack run`.
//! - `shared_memory`: how a program under `memtrack run` passes its events to the command.
//! - `guarded_file`, `message`, `signals`, `environment`: files, messages and signals in a program that does
//!   not know about memtrack.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod accounts;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
pub mod environment;
pub mod events;
mod guarded_file;
pub mod host;
pub mod internal_bytes;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod mapped;
pub mod message;
pub mod operators;
#[doc(hidden)]
pub mod python;
pub mod reentry;
pub mod scope;
mod shared_map;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod shared_memory;
pub mod signals;
pub mod stack;
pub mod switch;
mod zeroed;

/// The name under which `memtrack-core` publishes [`events`].
pub use events as recorder;
