//! The memory tracker, which reads counters after every operator like PyTorch's `MemoryTracker`. This module contains
//! the data of a run, its file, its summary and its figures, which are the same for recorded and loaded runs.
//!
//! ```
//! # use memtrack_tracker::TrackerStats;
//! let mut stats = TrackerStats::default();
//! stats.mark("fw_start");
//! stats.push(".randn.default_0", 1.0, 1.0, 2.0); // MiB allocated, active, reserved
//! stats.push("encoder.forward.mm.default_0", 1.5, 1.5, 2.0);
//!
//! let mut file = Vec::new(); // or stats.save_stats("stats.pickle"), which PyTorch's MemoryTracker.load reads
//! stats.save_to(&mut file)?;
//! let loaded = TrackerStats::load_from(&file[..])?;
//! assert!(loaded.summary(20)?.to_string().contains("encoder.forward.mm.default_0: 0.5MB"));
//! # Ok::<(), memtrack_tracker::StatsError>(())
//! ```

#[cfg(feature = "plot")]
pub mod figures;
mod peak;
mod pickle_file;
mod stats;
mod stats_error;
mod summary;

pub use memtrack_formats::pickle::PickleError;
pub use peak::ReachedPeak;
pub use stats::{AllocatedPeak, Folded, Sample, TrackerStats};
pub use stats_error::StatsError;
pub use summary::{Growth, Summary};
