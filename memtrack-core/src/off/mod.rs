//! The recording API in builds without the recorder, where every call compiles and does nothing.

mod allocator;
mod monitor;
mod oom;
pub mod operators;
pub mod recorder;
pub mod scope;
#[cfg(feature = "report")]
mod tracker;

pub use allocator::{TrackingAllocator, internal_heap_bytes, own_bytes};
#[cfg(feature = "report")]
pub use monitor::who_holds;
pub use monitor::{dump_snapshot, mark, snapshot, start_monitor, start_monitor_with, stop};
#[cfg(feature = "plot")]
pub use monitor::{save_memory_usage, save_segment_usage};
pub use oom::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
#[cfg(feature = "report")]
pub use tracker::MemoryTracker;
