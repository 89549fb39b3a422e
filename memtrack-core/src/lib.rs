//! Where did my memory go? memtrack-core records a Rust program's allocations, on the host heap and on any device whose
//! allocator reports to it. Each is recorded with its stack and its operator, and reports show what holds the memory.
//!
//! # For a program
//!
//! It takes three lines: the allocator, start and stop.
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
//! `memtrack` command; [`Recording::tracker`] holds the operator series of PyTorch's `MemoryTracker` and can save it as
//! the pickle that PyTorch reads. [`recorder::Options`] sets the parameters of a recording and where it is written:
//!
//! ```
//! use memtrack_core::recorder::Options;
//!
//! # let folder = std::env::temp_dir();
//! // Every block, however small, and a file that is written even if the program panics or exits early.
//! let options = Options::new().exact().output(folder.join("run.memtrack"));
//! memtrack_core::start_monitor_with(&options)?;
//! memtrack_core::stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # While it runs, and when memory runs out
//!
//! [`dump_snapshot`] writes what has been recorded so far, at any time. A `.pickle` file is a snapshot that
//! pytorch.org/memory_viz and Python can open; a `.memtrack` file keeps everything. `save_segment_usage` and
//! `save_memory_usage` (feature `plot`) draw the contents of segments. When an allocator reports that memory ran out,
//! the recorder writes a dump if [`Options::dump_on_oom`](recorder::Options::dump_on_oom) names a file, and calls the
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
//! `(optimizer)` make it part of the path. Where an attribute cannot be placed, use the guards in [`scope`]. While
//! nothing is being monitored, both cost a load and a branch; without the feature `record`, they cost nothing.
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
//! Allocations outside all scopes are named after functions in their stacks. candle, burn, tch, cudarc and others are
//! known, and [`Recording::with_pattern`] adds patterns of your own.
//!
//! # What memory is for
//!
//! Memory may hold parameters, optimizer state, activations or gradients. With
//! [`Options::operators`](recorder::Options::operators), the recording includes the operators that ran and their
//! tensors, and reports show what memory is for. `#[track_memory]` reads the arguments and results whose types
//! implement [`ReportTensors`](operators::ReportTensors). Facts that only the program knows are declared with the
//! functions in [`operators`].
//!
//! ```
//! use memtrack_core::event::DeviceId;
//! use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo, TensorReader};
//! use memtrack_core::{recorder::Options, track_memory};
//!
//! struct Tensor {
//!     id: u64,
//!     data: Vec<f32>,
//! }
//!
//! impl ReportTensors for Tensor {
//!     fn report(&self, to: &mut TensorReader<'_>) {
//!         let (address, shape) = (self.data.as_ptr().addr() as u64, [self.data.len()]);
//!         let info = TensorInfo::new(self.id, DeviceId::HOST, Dtype::F32, &shape[..]);
//!         to.tensor(&info.storage(address, 4 * self.data.len() as u64));
//!     }
//! }
//!
//! #[track_memory]
//! fn scale(input: &Tensor, weight: &Tensor) -> Tensor {
//!     let data = input.data.iter().zip(&weight.data).map(|(input, weight)| input * weight);
//!     Tensor { id: input.id + 2, data: data.collect() }
//! }
//!
//! memtrack_core::start_monitor_with(&Options::new().operators())?;
//! let weight = Tensor { id: 0, data: vec![2.0; 100] };
//! operators::parameters("model", [("weight", &weight)]);
//! scale(&Tensor { id: 1, data: vec![3.0; 100] }, &weight);
//! let recording = memtrack_core::stop();
//! assert!(!recording.snapshot().operators.is_empty()); // for `memtrack categories`, and feature `categories`
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What keeps this buffer alive?
//!
//! Cycles of [`Rc`](std::rc::Rc) or [`Arc`](std::sync::Arc) are never collected, so the device memory that they hold is
//! not freed until the program ends. With the feature `cycles`, memtrack finds such cycles, proves that nothing else
//! holds them, and prints how much memory each one keeps alive and which reference to make weak. Types declare their
//! references with [`#[derive(References)]`](derive@References), the program registers values where it creates them,
//! and `cycles::find` searches for cycles. With `cycles::warn_device_cycles`, a running program searches at the end of
//! each root scope. The repository's docs/CYCLES.md describes the findings and their limits.
//!
#![cfg_attr(feature = "cycles", doc = "```")]
#![cfg_attr(not(feature = "cycles"), doc = "```ignore")]
//! use memtrack_core::event::DeviceId;
//! use memtrack_core::references::{DeviceMemory, Visitor};
//! use memtrack_core::{References, cycles};
//! use std::cell::OnceCell;
//! use std::rc::Rc;
//!
//! #[derive(References)]
//! struct Layer {
//!     owner: OnceCell<Rc<Layer>>, // a `Weak` would be right
//!     buffer: Buffer,
//! }
//!
//! struct Buffer {
//!     address: u64,
//! }
//!
//! impl References for Buffer {
//!     fn references(&self, to: &mut Visitor<'_>) {
//!         to.memory(DeviceMemory { device: DeviceId(0), address: self.address, size_bytes: 4096 });
//!     }
//! }
//!
//! cycles::enable();
//! let layer = Rc::new(Layer { owner: OnceCell::new(), buffer: Buffer { address: 0x1000 } });
//! cycles::register(&layer);
//! layer.owner.set(Rc::clone(&layer)).ok();
//! assert_eq!(cycles::find()?.findings().leaks(), 0); // `layer` is in use
//! drop(layer);
//! let report = cycles::find()?;
//! assert_eq!(report.findings().leaked.known_bytes, 4096);
//! println!("{report}"); // 1 cycle that nothing else holds keeps 4.0 KiB (1 device buffer) until the program ends. …
//! # assert!(report.to_string().contains("make weak: Layer .owner → Layer"), "{report}");
//! # Ok::<(), cycles::NotScanned>(())
//! ```
//!
//! # For CUDA
//!
//! With the feature `cuda`, every allocation made through the CUDA driver is recorded with its stack, scope, stream and
//! device, whether it comes from candle, burn, cudarc or a C library. The program needs no other change, because
//! linking memtrack puts a hook between it and the driver (module `cuda`). Models that have `tracing` spans, such as
//! candle's, need no annotations either (feature `tracing`). To record a program that does not link memtrack, start it
//! with `memtrack run -- PROGRAM`.
//!
//! # For an allocator
//!
//! A pool, an arena or a device allocator reports its events with [`recorder::record_alloc`], [`recorder::record_free`]
//! and related functions, for any device and stream. Requests that it cannot satisfy are reported with
//! [`recorder::record_oom`].
//!
//! # What is exact and what is estimated
//!
//! Every block is recorded as long as recording takes less than 3 % of a thread's processor time
//! ([`Options::budget`](recorder::Options::budget)). If it would take more, the thread samples its host blocks below
//! 64 KiB instead, at a rate that depends on its load. Samples are weighted so that totals are unbiased, and reports
//! show the error of their numbers: `1.3 GiB ± 4 %`, or `< 40.0 MiB` if the error is more than half of the number. Both
//! hold with 95 % confidence. Numbers without an error are exact. The sums of devices
//! ([`snapshot::DeviceStatistics`]) and of scopes ([`snapshot::ScopeSums`]) are always exact. In rankings by operator,
//! module and phase, rows that depend on scopes alone therefore contain only one estimate: the bytes live at the peak.
//! [`Options::exact`](recorder::Options::exact) records every block at any cost, and
//! [`Options::sample`](recorder::Options::sample) samples at a fixed rate.
//!
//! # What it costs
//!
//! | situation | cost |
//! |---|---|
//! | feature `record` off | nothing: the same machine code |
//! | nothing monitored | under 1 ns per allocation, free or scope |
//! | monitored, default | aims to spend 3 % of the time on events, by its own measurement; 42 ns per operator |
//! | an event with its stack of 46 frames | 79 ns with frame pointers, 129 ns without |
//!
//! An event takes 48 bytes, and the newest 1,048,576 events per device are kept. The repository's docs/COSTS.md
//! describes how these numbers were measured and on which machine.
//!
//! # What it does not record
//!
//! Memory that C libraries allocate with `malloc` is not recorded. Memory that was allocated before [`start_monitor`]
//! appears only when it is freed.
//!
//! # Features
//!
//! A library that only annotates depends on memtrack-core with `default-features = false`. Its attributes and scopes
//! then do nothing until a program enables `record`.
//!
//! - `record` (default, Linux only): the recorder, the allocator and stacks, and recordings as `.memtrack` files. Without
//!   it, every call to the recording API compiles and does nothing, except for tests with [limits](testing), which do not
//!   compile, because a limit that is never checked would be worse than none. Features that need `record` enable it.
//! - `report` (default): rankings, summaries, the tracker and symbol names; enables `formats`.
//! - `formats` (enabled by `report`): reads, writes and converts PyTorch's snapshots and `.memtrack` files.
//! - `allocator`: PyTorch's caching allocator.
//! - `cuda`: the hook for the CUDA driver (Linux with glibc).
//! - `tracing`: scopes from the spans of the `tracing` crate.
//! - `compare`: the changes between two files, limits for CI gates, and the ranks of a job
//!   (`analysis::{diff, limits, ranks}`).
//! - `plot`: the tracker's figures as SVG and HTML, and flame graphs of the segments' contents.
//! - `dataset`: snapshots as Parquet files, with a folder for each rank of a job, for DuckDB, Spark and other engines.
//! - `page`: a recording or snapshot as a single HTML page for the browser (`Recording::save_page`).
//! - `ranks-page`: the ranks of a job as a single HTML page (`page::ranks::html`).
//! - `exports`: files for other tools: profiles, flame graphs and tables.
//! - `categories`: what the blocks in a recording are for, based on the operators that ran.
//! - `profile`: what memory is for over time, also for operator traces from other programs: the timeline, memory by
//!   module, and advice on lowering the peak.
//! - `cycles`: cycles of reference-counted pointers that keep device memory alive.
//! - `scrub`: snapshots with pseudonyms instead of names, so that files can be shared ([`scrub::Scrub`]).
//! - `serve`: heap profiles and metrics over HTTP (`memtrack_core::serve`).
//! - `cuda-stats`: reports from the CUDA driver and NVML about devices, pools and processes.
//!
//! # The modules, for contributors
//!
//! - `monitor`, `recording`, `dump`, `watched_dumps`, `who_holds`, `resident`: starting and stopping, the finished
//!   recording, and files and reports while recording continues; `plain`: a monitor without reports.
//! - `serve`: the program's memory over HTTP.
//! - `off_cycles`: the functions of `cycles` in builds without it. (Without the recorder, its functions do nothing.)
//! - `tracker` (`live` starts and stops, `run` records into a bounded `series`), `tracing`, `testing` (tests with
//!   limits).
//! - `recorder`, `scope`, `operators`, `snapshot` and the other re-exports come from the packages in `memtrack-core/`;
//!   `fuzz/` has the fuzzers.

// Without the recorder, functions ignore their arguments.
#![cfg_attr(not(feature = "record"), allow(unused_variables))]

mod dump;
#[cfg(all(test, feature = "record"))]
mod macro_tests;
mod monitor;
#[cfg(not(feature = "cycles"))]
mod off_cycles;
#[cfg(all(feature = "record", not(feature = "report")))]
mod plain;
mod recording;
#[cfg(feature = "report")]
mod resident;
#[cfg(feature = "serve")]
pub mod serve;
pub mod testing;
#[cfg(feature = "tracing")]
pub mod tracing;
#[cfg(feature = "report")]
pub mod tracker;
mod watched_dumps;
#[cfg(feature = "report")]
mod who_holds;
#[cfg(all(test, feature = "record"))]
mod with_scopes;

/// The types of the `memtrack` command's JSON output.
#[cfg(feature = "formats")]
pub use memtrack_model::answer;
pub use memtrack_model::event;
#[doc(inline)]
pub use memtrack_model::references::References;
pub use recording::Recording;

#[cfg(feature = "report")]
#[doc(no_inline)]
pub use analysis::top::By;
#[doc(inline)]
pub use memtrack_macros::{References, track_memory};
#[doc(no_inline)]
pub use memtrack_model::options::Options;

pub use dump::dump_snapshot;
#[cfg(feature = "plot")]
pub use dump::{save_memory_usage, save_segment_usage};
pub use memtrack_recorder::allocator::TrackingAllocator;
pub use memtrack_recorder::record::mark;
pub use monitor::{snapshot, start_monitor, start_monitor_with, stop};
pub use recorder::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
#[cfg(feature = "report")]
pub use resident::resident;
#[cfg(feature = "serve")]
pub use serve::serve;
pub use watched_dumps::{Pressure, PressureWatch, SignalWatch, WatchedSign, dump_at, dump_on_signal};
#[cfg(feature = "report")]
pub use who_holds::who_holds;

#[cfg(feature = "allocator")]
pub use memtrack_allocator as allocator;
#[cfg(any(feature = "cuda", feature = "cuda-stats"))]
pub use memtrack_cuda as cuda;
#[cfg(feature = "dataset")]
pub use memtrack_dataset as dataset;
/// The reader for Python's pickles, used by memtrack's tests and fuzzers.
#[cfg(feature = "formats")]
#[doc(hidden)]
pub use memtrack_formats::document as __pickle;
#[cfg(feature = "page")]
pub use memtrack_page as page;
#[cfg(feature = "categories")]
pub use memtrack_profile as profile;
#[cfg(feature = "scrub")]
pub use memtrack_scrub as scrub;
#[cfg(feature = "report")]
pub use memtrack_viz as viz;

#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub use memtrack_recorder::bench_internals;
#[cfg(feature = "record")]
#[doc(hidden)]
pub use memtrack_recorder::message::print_as as __print_as;
/// The width of a report, for the `memtrack` command.
#[cfg(feature = "report")]
#[doc(hidden)]
pub use memtrack_report::terminal::width as __report_width;

/// The host heap: its allocator, and how much memory memtrack itself uses.
pub mod host {
    pub use memtrack_recorder::allocator::{TrackingAllocator, internal_heap_bytes, own_bytes};
}

pub mod operators;
pub mod recorder;
pub mod scope;

pub mod snapshot;
pub mod tasks;

/// Stacks: return addresses and the functions at them. A program records raw addresses and the list of its loaded
/// binaries (`modules`, feature `record`). When the recording is read, possibly later or on another machine,
/// `symbols` converts the addresses to functions and lines. It never uses a binary other than the recorded one.
pub mod stack {
    #[cfg(feature = "record")]
    pub use memtrack_recorder::stack::modules;
    #[cfg(feature = "formats")]
    pub use memtrack_symbols::{build_id, names};

    /// Conversion of return addresses to functions and lines.
    pub mod symbols {
        pub use memtrack_model::{Frame, NameFrames};
        #[cfg(feature = "formats")]
        pub use memtrack_symbols::Symbolizer;
    }
}

/// A value's references: [`References`], which `#[derive(References)]` implements, and the
/// [`Visitor`](references::Visitor) that collects them.
pub mod references {
    pub use memtrack_macros::References;
    pub use memtrack_model::references::*;
}

/// Tools for finding out why a device buffer is kept alive: graphs of values and their references, the cycles in these
/// graphs, the memory that the cycles hold, and the reference to make weak.
///
/// Without the feature `cycles`, this module contains only the functions that libraries call, and they do nothing.
pub mod cycles {
    pub use crate::References;
    #[cfg(not(feature = "cycles"))]
    pub use crate::off_cycles::*;
    #[cfg(feature = "cycles")]
    #[doc(inline)]
    pub use memtrack_cycles::*;
    pub use memtrack_model::references::{Capturing, DeviceMemory, Visitor};
}

/// Analyses of a snapshot: the memory live at the peak, its allocations, its phases, a device's contents at the end,
/// and leaks. The feature `compare` adds limits and the differences between two snapshots.
#[cfg(feature = "report")]
pub mod analysis {
    pub use memtrack_blocks::*;
    pub use memtrack_frames::*;
    pub use memtrack_model::units;
    pub use memtrack_report::*;
}

/// Snapshots in the formats of other tools: pprof, flame graphs and tables.
#[cfg(feature = "exports")]
#[doc(inline)]
pub use memtrack_exports as exports;

/// Items that the `memtrack` command uses.
#[cfg(feature = "formats")]
#[doc(hidden)]
pub use memtrack_file::{
    ReplacingFile as __ReplacingFile, part::is_unfinished as __is_unfinished, read_meta as __read_meta,
};

/// [`dump_at`] with other files of the kernel and other times, for tests. Not API.
#[cfg(feature = "record")]
#[doc(hidden)]
pub use memtrack_recorder::dumps::pressure::{Surroundings as __Surroundings, dump_at as __dump_at};

#[cfg(feature = "collector")]
#[doc(hidden)]
pub use memtrack_collector as __collector;
/// The protocol between the `memtrack` command and the programs that it starts.
#[doc(hidden)]
pub use memtrack_model::run_protocol as __run_protocol;
#[cfg(feature = "http")]
#[doc(hidden)]
pub use memtrack_serve as __http;

/// The items that the expansion of `#[track_memory]` uses. This is not a public API and may change without notice.
#[doc(hidden)]
pub mod __private {
    pub use memtrack_model::snapshot::ScopeKind;
    pub use memtrack_recorder::scope::Site;

    pub use crate::__memtrack_async_scope as async_scope;
    pub use crate::__memtrack_call as call;
    pub use crate::__memtrack_limited as limited;
    #[cfg(feature = "record")]
    pub use crate::testing::expansion::*;
    #[cfg(feature = "record")]
    pub use memtrack_recorder::operators::Side;

    /// A value that may or may not have tensors. `(&Read(&value)).add_to(…)` resolves to [`ReadTensors`] if the value's
    /// type implements [`ReportTensors`](crate::operators::ReportTensors), and otherwise to [`ReadNothing`], which is
    /// one reference further away.
    #[cfg(feature = "record")]
    #[derive(Debug)]
    pub struct Read<'a, T: ?Sized>(pub &'a T);

    /// Implemented for the [`Read`] of a type that has tensors.
    #[cfg(feature = "record")]
    pub trait ReadTensors<M> {
        /// Adds the value's tensors to `side`.
        fn add_to(&self, side: &mut Side);
    }

    #[cfg(feature = "record")]
    impl<T: crate::operators::ReportTensors<M> + ?Sized, M> ReadTensors<M> for Read<'_, T> {
        fn add_to(&self, side: &mut Side) {
            side.add(self.0);
        }
    }

    /// Implemented for the [`Read`] of any other type.
    #[cfg(feature = "record")]
    pub trait ReadNothing {
        /// Adds nothing.
        fn add_to(&self, _side: &mut Side) {}
    }

    #[cfg(feature = "record")]
    impl<T: ?Sized> ReadNothing for &Read<'_, T> {}

    /// Returns a value of an annotated async function's output type. It is used only for type inference and never
    /// called.
    pub fn output<T>() -> T {
        unreachable!("the branch is never taken")
    }
}

/// The body of an annotated async function, as a future that carries its scope.
#[cfg(feature = "record")]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_async_scope {
    ([$($enter:tt)*] [$($keywords:tt)*] $body:tt) => {
        $($enter)* ($($keywords)* $body).await
    };
}

/// The body of an annotated async function. Without the recorder, it is not wrapped, because even a wrapper that does
/// nothing would store the parameters twice.
#[cfg(not(feature = "record"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_async_scope {
    ([$($enter:tt)*] [$($keywords:tt)*] $body:tt) => {
        $body
    };
}

/// A test with limits.
#[cfg(feature = "record")]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_limited {
    ($($call:tt)*) => { $($call)* };
}

/// A test with limits in a build without the recorder. It does not compile, because a limit that is never checked would
/// be worse than none.
#[cfg(not(feature = "record"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_limited {
    ($($call:tt)*) => {
        compile_error!(
            "`#[limits]` needs memtrack-core's feature `record`, which is on by default: add it to memtrack-core under \
             [dev-dependencies], or put the attribute under a feature of your own with `cfg_attr`"
        )
    };
}

/// The body of an annotated function, which runs in its scope. If operators are recorded, so are the tensors of the
/// arguments and the result. The result is read at the end of the body, so a result that `return` or `?` returns early
/// is not recorded.
#[cfg(feature = "record")]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_call {
    ([$($enter:tt)*] [$($input:tt)*] [$($output:tt)*] $body:tt) => {{
        let _scope = $($enter)*;
        if $crate::operators::is_recorded() {
            #[allow(unused_imports)]
            use $crate::__private::{ReadNothing as _, ReadTensors as _};
            #[allow(unused_mut)]
            let mut side = $crate::__private::Side::inputs();
            $((&$crate::__private::Read(&$input)).add_to(&mut side);)*
            side.finish();
        }
        $crate::__private::call!(@ [$($output)*] $body)
    }};
    (@ [] $body:tt) => { $body };
    (@ [$($output:tt)+] $body:tt) => {{
        #[allow(clippy::diverging_sub_expression)]
        let output: $($output)+ = $body;
        #[allow(unreachable_code)]
        if $crate::operators::is_recorded() {
            #[allow(unused_imports)]
            use $crate::__private::{ReadNothing as _, ReadTensors as _};
            let mut side = $crate::__private::Side::outputs();
            (&$crate::__private::Read(&output)).add_to(&mut side);
            side.finish();
        }
        #[allow(unreachable_code)]
        output
    }};
}

/// The body of an annotated function, which runs in its scope. Without the recorder, no arguments or results are
/// recorded.
#[cfg(not(feature = "record"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __memtrack_call {
    ([$($enter:tt)*] [$($input:tt)*] [$($output:tt)*] $body:tt) => {{
        let _scope = $($enter)*;
        $body
    }};
}
