//! Where did my memory go? memtrack-core records the allocations of a Rust program, on the host heap and on any device
//! whose allocator reports to it, with the stack and the operator that made each, and says who holds the memory.
//!
//! # For a program that wants to know
//!
//! Three lines: the allocator, start, stop.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
//!
//! fn main() {
//!     memtrack_core::start_monitor();
//!     let squares: Vec<u64> = (0..1_000_000).map(|i| i * i).collect();
//!     let recording = memtrack_core::stop();
//!     println!("{recording}"); // the top operators (here: stacks) and the phases
//! #   assert!(recording.snapshot().blocks.iter().any(|block| block.size_bytes == 8_000_000));
//! #   drop(squares);
//! }
//! ```
//!
//! [`Recording::top`] ranks operators, modules, stacks or phases; [`Recording::save`] writes a `.memtrack` file for the
//! `memtrack` command; [`Recording::tracker`] holds the operator series of PyTorch's `MemoryTracker` and saves it as the
//! pickle PyTorch reads. What is recorded, and where it goes, is set by [`recorder::Options`]:
//!
//! ```
//! use memtrack_core::recorder::Options;
//!
//! # let folder = std::env::temp_dir();
//! // Every block, however small; and a file that is there even if the program panics or exits early.
//! let options = Options::new().exact().output(folder.join("run.memtrack"));
//! memtrack_core::start_monitor_with(&options)?;
//! memtrack_core::stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # While it runs, and when memory runs out
//!
//! [`dump_snapshot`] writes what was recorded so far at any moment: `.pickle` is a snapshot that
//! pytorch.org/memory_viz and Python open, `.memtrack` keeps everything. `save_segment_usage` and
//! `save_memory_usage` (feature `plot`) draw what the segments hold. When an allocator reports that memory ran out, the
//! recorder dumps by itself if [`Options::dump_on_oom`](recorder::Options::dump_on_oom) names a file, and calls the
//! program's own observers ([`attach_out_of_memory_observer`]).
//!
//! ```
//! # let folder = std::env::temp_dir();
//! use memtrack_core::recorder::Options;
//!
//! let options = Options::new().dump_on_oom(folder.join("oom.memtrack"));
//! memtrack_core::start_monitor_with(&options)?;
//! memtrack_core::attach_out_of_memory_observer(|oom| eprintln!("{oom}"));
//! memtrack_core::dump_snapshot(folder.join("now.pickle"))?;
//! memtrack_core::stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # For a library or a model
//!
//! [`#[track_memory]`](track_memory) on a function makes it an operator; `(module)`, `(root)`, `(backward)` and
//! `(optimizer)` make it a part of the path. Where no attribute can go, the guards of [`scope`] do. While nothing is
//! monitored both cost a load and a branch; without the feature `record` they are nothing at all.
//!
//! ```
//! use memtrack_core::{scope, track_memory};
//!
//! struct Attention;
//!
//! impl Attention {
//!     #[track_memory(module, name = "attention")]
//!     fn forward(&self, x: &[f32]) -> Vec<f32> {
//!         softmax(x) // recorded as `block.0.attention.forward.softmax`
//!     }
//! }
//!
//! #[track_memory]
//! fn softmax(x: &[f32]) -> Vec<f32> {
//!     x.to_vec()
//! }
//!
//! #[track_memory(root)]
//! fn model(layers: &[Attention], x: &[f32]) -> Vec<f32> {
//!     let mut x = x.to_vec();
//!     for (index, layer) in layers.iter().enumerate() {
//!         let _block = scope::module(&format!("block.{index}"));
//!         x = layer.forward(&x);
//!     }
//!     x
//! }
//! # model(&[Attention], &[1.0]);
//! ```
//!
//! What no scope covers is named from its stack: candle, burn, tch, cudarc and others are known, and
//! [`Recording::with_pattern`] adds your own.
//!
//! # For CUDA
//!
//! With the feature `cuda` every allocation of the CUDA driver is recorded, with stack, scope, stream and device, whoever
//! makes it: candle, burn, cudarc, a C library. Nothing else changes in the program: linking memtrack puts a hook between
//! it and the driver (module `cuda`). Models with spans of `tracing`, as candle's, need no annotation either
//! (feature `tracing`). A program that does not link memtrack is started with `memtrack run -- PROGRAM`.
//!
//! # For an allocator
//!
//! A pool, an arena or a device allocator reports with [`recorder::record_alloc`], [`recorder::record_free`] and their
//! siblings, for any device and stream, and what it cannot give with [`recorder::record_oom`].
//!
//! # What is exact and what is estimated
//!
//! Every block is recorded while that takes less than 3 % of a thread's processor time
//! ([`Options::budget`](recorder::Options::budget)). A thread for which it would take more samples its host blocks below
//! 64 KiB, at a rate that follows its load; each sample stands for as many as make the totals unbiased, and reports say
//! how far the numbers are off: `1.3 GiB ± 4 %`, or `< 40.0 MiB` where the error is above a half, both in 95 of 100
//! cases. Numbers without either are exact. So are the sums in [`snapshot::DeviceStatistics`] in any case, and what each
//! scope allocated ([`snapshot::ScopeSums`]): in rankings by operator, module and phase, rows that scopes alone decide are
//! estimates only in what was live at the peak.
//! [`Options::exact`](recorder::Options::exact) records every block whatever it costs, and
//! [`Options::sample`](recorder::Options::sample) at a fixed rate.
//!
//! # What it costs
//!
//! | situation | cost |
//! |---|---|
//! | feature `record` off | nothing: the same machine code |
//! | nothing monitored | under 1 ns per allocation, free or scope |
//! | monitored, default | aims at 3 % of the time for events, by its own measurement; 0.05 µs per operator |
//! | an event with its stack | 0.15 µs with frame pointers, 0.2 µs without |
//!
//! An event takes 48 bytes, and the newest 1,048,576 per device are kept. How this was measured, and on what: the
//! README.
//!
//! # What it does not see
//!
//! Memory that C libraries take from `malloc` themselves; memory from before [`start_monitor`], but for its frees.
//!
//! # Features
//!
//! - `record` (default): the recorder, the allocator, stacks. Without it recordings can still be read.
//! - `cuda`: the hook of the CUDA driver (Linux with glibc). It adds no dependency.
//! - `tracing`: scopes from the spans of the crate `tracing`.
//! - `plot`: the tracker's figures as SVG and HTML, and flame graphs of what the segments hold.
//! - `cuda-stats`: what the CUDA driver and NVML say about devices, pools and processes.

pub mod allocator;
pub mod analysis;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
#[cfg(any(feature = "cuda", feature = "cuda-stats"))]
pub mod cuda;
#[cfg(feature = "record")]
mod dump;
mod environment;
pub mod event;
#[cfg(feature = "record")]
pub mod host;
#[cfg(feature = "record")]
mod message;
#[cfg(feature = "record")]
mod monitor;
#[cfg(feature = "record")]
mod own;
#[cfg(feature = "record")]
mod own_file;
pub mod pickle;
#[cfg(feature = "record")]
pub mod recorder;
#[cfg(feature = "record")]
mod reentry;
mod replacing_file;
pub mod scope;
#[cfg(feature = "record")]
mod signals;
pub mod snapshot;
pub mod stack;
#[cfg(feature = "record")]
mod switch;
#[cfg(feature = "tracing")]
pub mod tracing;
pub mod tracker;
pub mod viz;

pub use analysis::top::By;
#[cfg(feature = "record")]
pub use dump::dump_snapshot;
#[cfg(all(feature = "record", feature = "plot"))]
pub use dump::{save_memory_usage, save_segment_usage};
#[cfg(feature = "record")]
pub use host::TrackingAllocator;
#[doc(inline)]
pub use memtrack_macros::track_memory;
#[cfg(feature = "record")]
#[doc(hidden)]
pub use message::say_as as __say_as;
#[cfg(feature = "record")]
pub use monitor::{Recording, snapshot, start_monitor, start_monitor_with, stop};
#[cfg(feature = "record")]
pub use recorder::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
pub use replacing_file::ReplacingFile;
#[doc(hidden)]
pub use scope::__private;
