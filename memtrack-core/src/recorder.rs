//! The recorder, which receives events from any thread and keeps the newest events, the live blocks and exact sums.
//! Allocators report to it with the functions in this module, and so do the host heap's allocator and the CUDA hook.
//!
//! ```
//! use memtrack_core::event::{DeviceId, StreamId};
//! use memtrack_core::recorder;
//!
//! let device = DeviceId(0);
//! memtrack_core::start_monitor();
//! recorder::record_segment_alloc(device, StreamId(0), 0x7000_0000, 2 << 20);
//! recorder::record_alloc(device, StreamId(0), 0x7000_0000, 1 << 20);
//! recorder::record_free(device, StreamId(0), 0x7000_0000, 1 << 20);
//! let recording = memtrack_core::stop();
//! assert_eq!(recording.snapshot().events.rows_of(device).count(), 3);
//! ```
//!
//! While nothing is being monitored, a call costs only a load and a branch. Report a free **before** the memory is
//! released, and an allocation **after** the memory was obtained. Otherwise another thread may get the same address
//! between the two.

pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};
pub use memtrack_recorder::record::{
    OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer, record_alloc, record_free,
    record_free_completed, record_free_requested, record_oom, record_segment_alloc, record_segment_free,
    record_segment_map, record_segment_unmap,
};
