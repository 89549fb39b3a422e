//! The model of memtrack: the recorder and every reader make a [`Snapshot`], every report and every writer takes one.
//! It knows nothing about files, symbols or the machine.
//!
//! This package is a part of `memtrack-core`, which re-exports what programs use; depend on that.

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
pub mod python_float;
pub mod references;
#[doc(hidden)]
pub mod run_protocol;
mod scope_path;
pub mod snapshot;
pub mod text;
pub mod units;

pub use devices::{DeviceProcess, MemoryInfo};
pub use frame::{Frame, NameFrames};
pub use out_of_memory::OutOfMemory;
pub use scope_path::{Phase, Place, ScopeStep};
pub use snapshot::Snapshot;
