//! memtrack-core: record device and host memory with stacks and operator scopes.

pub mod analysis;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
pub mod event;
#[cfg(feature = "record")]
pub mod host;
#[cfg(feature = "record")]
mod monitor;
pub mod pickle;
#[cfg(feature = "record")]
pub mod recorder;
#[cfg(feature = "record")]
mod reentry;
mod replacing_file;
pub mod scope;
pub mod snapshot;
pub mod stack;
#[cfg(feature = "record")]
mod switch;
pub mod tracker;
pub mod viz;

pub use analysis::top::By;
#[cfg(feature = "record")]
pub use host::TrackingAllocator;
#[doc(inline)]
pub use memtrack_macros::track_memory;
#[cfg(feature = "record")]
pub use monitor::{Recording, snapshot, start_monitor, start_monitor_with, stop};
pub use replacing_file::ReplacingFile;
#[doc(hidden)]
pub use scope::__private;
