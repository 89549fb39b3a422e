//! The recording API of a build without the recorder: every call compiles, and does nothing.

mod allocator;
mod monitor;
mod oom;
pub mod operators;
pub mod recorder;
pub mod scope;

pub use allocator::{TrackingAllocator, own_bytes};
#[cfg(feature = "report")]
pub use monitor::who_holds;
pub use monitor::{dump_snapshot, mark, snapshot, start_monitor, start_monitor_with, stop};
pub use oom::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
