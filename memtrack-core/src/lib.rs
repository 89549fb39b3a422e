//! memtrack-core: record device and host memory with stacks and operator scopes.

#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_internals;
pub mod analysis;
pub mod event;
#[cfg(feature = "record")]
pub mod host;
#[cfg(feature = "record")]
mod monitor;
#[cfg(feature = "record")]
pub mod recorder;
#[cfg(feature = "record")]
mod reentry;
pub mod scope;
pub mod pickle;
pub mod snapshot;
pub mod stack;
mod switch;
pub mod tracker;

#[cfg(feature = "record")]
pub use host::TrackingAllocator;
#[doc(inline)]
pub use memtrack_macros::track_memory;
#[cfg(feature = "record")]
pub use monitor::{Recording, start_monitor, start_monitor_with, stop};
pub use analysis::top::By;
#[doc(hidden)]
pub use scope::__private;
