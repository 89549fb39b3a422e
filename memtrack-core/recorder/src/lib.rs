//! The recorder: the open scopes ([`scope`]), the host heap ([`host`]), stacks ([`stack`]), and the ring and tables
//! that store events ([`events`]). They share one package because the hot path depends on inlining.
//!
//! The modules:
//!
//! - `record`, `allocator`, `scope`, `operators`, `tasks`: what programs call. Without the feature `record`, only these and
//!   `switch` are compiled, and do nothing.
//! - `switch`: the word that every hook reads first; `reentry`: keeps memtrack's own allocations out of the recording.
//! - `clock`, and `settings` of the running session; `scope`: the open scopes; `stack`: capture, interning and loaded
//!   binaries.
//! - `tasks`: futures whose memory is added up separately.
//! - `host`: which small blocks of the heap are recorded (budget and sampler). It does not depend on `events`, which does
//!   not depend on `allocator`.
//! - `events`: the hot path (`hooks`), each thread's state, chunks, the ring, the live table and order; sessions
//!   and how they end; snapshots (`collect`, `merge`); streams; forks; segments and driver memory.
//! - `accounts`: exact sums for tests with limits.
//! - `shared_map`: a dashmap whose locks are only tried, never waited for; `zeroed`: tables that begin as zeros;
//!   `internal_bytes`, `internal_blocks`, `internal_pages`: memtrack's own memory.
//! - `probes`: the static probes (USDT) that profilers outside the program attach to.
//! - `mapped`: memory that a program under `memtrack run` maps itself.
//! - `dumps`: dumps when SIGUSR2 arrives or memory runs low; `background`: memtrack's own threads.
//! - `python`: the Python frames of stacks, under `memtrack run`.
//! - `shared_memory`: how a program under `memtrack run` passes its events to the command.
//! - `guarded_file`, `message`, `signals`, `errno`, `environment`: files, messages and signals in a program that does
//!   not know about memtrack.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

// The API, which does nothing without the feature `record`.
#![cfg_attr(not(feature = "record"), allow(dead_code, unused_imports, unused_variables))]

#[cfg(all(feature = "record", not(target_os = "linux")))]
compile_error!("memtrack records on Linux only: elsewhere, turn off the feature `record` of memtrack-core");

pub mod allocator;
pub mod operators;
pub mod record;
pub mod scope;
pub mod switch;
pub mod tasks;

#[cfg(feature = "record")]
pub mod accounts;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod background;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
#[cfg(feature = "record")]
mod clock;
#[cfg(feature = "record")]
pub mod dumps;
#[cfg(feature = "record")]
pub mod environment;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod errno;
#[cfg(feature = "record")]
pub mod events;
#[cfg(feature = "record")]
mod guarded_file;
#[cfg(feature = "record")]
pub mod host;
#[cfg(feature = "record")]
mod internal_blocks;
#[cfg(feature = "record")]
pub mod internal_bytes;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod internal_pages;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod mapped;
#[cfg(feature = "record")]
pub mod message;
#[cfg(feature = "record")]
mod probes;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod python;
#[cfg(feature = "record")]
pub mod reentry;
#[cfg(feature = "record")]
mod settings;
#[cfg(feature = "record")]
mod shared_map;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod shared_memory;
#[cfg(feature = "record")]
pub mod signals;
#[cfg(feature = "record")]
pub mod stack;
#[cfg(feature = "record")]
mod zeroed;

#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use settings::set_internal_code;

/// The name under which `memtrack-core` publishes [`events`].
#[cfg(feature = "record")]
pub use events as recorder;
