//! The memory tracker: counters after every operator, as PyTorch's `MemoryTracker` keeps them. This room holds the
//! data of a run, its file, its summary and its figures; whoever records or loads a run ends up with the same data.

#[cfg(feature = "plot")]
pub mod figures;
mod pickle_file;
mod python_float;
mod replacing_file;
mod stats;
mod stats_error;
mod summary;

pub use python_float::python_float_repr;
pub use replacing_file::ReplacingFile;
pub use stats::{Sample, TrackerStats};
pub use stats_error::StatsError;
pub use summary::{Growth, Summary};
