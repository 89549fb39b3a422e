//! The memory tracker: counters after every operator, like those of PyTorch's `MemoryTracker`. Recorded and loaded runs have
//! the same data, files, summaries and figures.
//!
//! ```
//! use memtrack_core::tracker::TrackerStats;
//!
//! let mut stats = TrackerStats::default();
//! stats.mark("fw_start");
//! stats.push(".randn.default_0", 1.0, 1.0, 2.0); // MiB allocated, active, reserved
//! stats.push("encoder.forward.mm.default_0", 1.5, 1.5, 2.0);
//!
//! let mut file = Vec::new(); // or stats.save_stats("stats.pickle"), which PyTorch's MemoryTracker.load reads
//! stats.save_to(&mut file)?;
//! let loaded = TrackerStats::load_from(&file[..])?;
//! assert!(loaded.summary(20)?.to_string().contains("encoder.forward.mm.default_0: 0.5MB"));
//! # Ok::<(), memtrack_core::tracker::StatsError>(())
//! ```

mod live;
#[cfg(feature = "record")]
mod run;
#[cfg(feature = "record")]
mod series;

pub use live::MemoryTracker;
pub use memtrack_model::python_float::python_float_repr;
pub use memtrack_tracker::*;

/// A marker in one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The name: `fw_start` or `fw_bw_boundary`.
    pub name: &'static str,
    /// The iteration, counted from 0. Each `fw_start` starts a new one.
    pub iteration: u64,
    /// The index of the next operator, counted from the tracker's first operator.
    pub op_index: u64,
}
