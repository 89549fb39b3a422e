//! memtrack's data model. The recorder and all readers produce a [`Snapshot`], and all reports and writers consume one.
//! The package does not depend on files, symbols or the machine.
//!
//! This package has the following modules:
//!
//! - `event`: the basic types `Event` (48 bytes, checked by a test), `Action` and ids.
//! - `snapshot`: the tables. `snapshot::events` defines the columns of an event, and `snapshot::pytorch` has the
//!   content that only PyTorch's files contain.
//! - `operators`: the trait through which a program reports its tensors, the trait's implementations for containers, and
//!   element types.
//! - `optrace`: operator traces.
//! - `references`: the trait that `#[derive(References)]` implements, and the references of standard library types.
//! - `options`: the parameters of a recording; `pressure`: the signs that memory runs low.
//! - `scope_path`: the module path, phase and operator.
//! - `frame`: frames and their names.
//! - `answer`: the types that the command's JSON answers share.
//! - `devices`, `out_of_memory`: reports on devices and failed requests.
//! - `text`, `python_float`, `units`, `escape`, `paths`: numbers and text as people, Python and HTML pages write them.
//! - `run_protocol`: the environment variables and files through which `memtrack run` and the program that it starts
//!   communicate.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

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
pub mod pressure;
pub mod python_float;
pub mod references;
#[doc(hidden)]
pub mod run_protocol;
mod scope_path;
pub mod snapshot;
pub mod text;
pub mod times;
pub mod units;

pub use devices::{DeviceProcess, MemoryInfo};
pub use frame::{Binary, BinaryPart, Frame, NameFrames};
pub use out_of_memory::OutOfMemory;
pub use scope_path::{Phase, ScopePosition, ScopeStep};
pub use snapshot::Snapshot;
