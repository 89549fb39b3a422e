//! memtrack's data model: the recorder and every reader produce a [`Snapshot`]; every report and every writer consumes one.
//! It is independent of files, symbols and the machine.
//!
//! This package is part of `memtrack-core`, which re-exports what programs use; depend on `memtrack-core` instead.

#[cfg(feature = "serde")]
pub mod answer;
mod devices;
#[doc(hidden)]
pub mod escape;
pub mod event;
mod frame;
pub mod operators;
pub mod options;
pub mod optrace;
mod out_of_memory;
pub mod paths;
pub mod python_float;
pub mod references;
#[doc(hidden)]
pub mod run_protocol;
mod scope_path;
pub mod snapshot;
pub mod text;
pub mod units;

pub use devices::{DeviceProcess, MemoryInfo};
pub use frame::{Binary, BinaryPart, Frame, NameFrames};
pub use out_of_memory::OutOfMemory;
pub use scope_path::{Phase, Place, ScopeStep};
pub use snapshot::Snapshot;
