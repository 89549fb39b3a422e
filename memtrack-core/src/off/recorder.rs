//! The functions with which allocators report, in a build without the recorder.

pub use super::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};

use memtrack_model::event::{DeviceId, StreamId};

/// Records an allocated block; without the recorder it does nothing.
#[inline(always)]
pub fn record_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records the free of a block; without the recorder it does nothing.
#[inline(always)]
pub fn record_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that the free of a block was requested while other streams may still use the block; without the recorder it does
/// nothing.
#[inline(always)]
pub fn record_free_requested(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that an earlier requested free is complete; without the recorder it does nothing.
#[inline(always)]
pub fn record_free_completed(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that a segment was obtained from the driver; without the recorder it does nothing.
#[inline(always)]
pub fn record_segment_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that a segment is released to the driver; without the recorder it does nothing.
#[inline(always)]
pub fn record_segment_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that pages were mapped into an expandable segment; without the recorder it does nothing.
#[inline(always)]
pub fn record_segment_map(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that pages are unmapped from an expandable segment; without the recorder it does nothing.
#[inline(always)]
pub fn record_segment_unmap(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that memory ran out; without the recorder it does nothing, and no observer is called.
#[inline(always)]
pub fn record_oom(
    _device: DeviceId,
    _stream: StreamId,
    _requested_bytes: u64,
    _device_free_bytes: u64,
    _device_total_bytes: u64,
) {
}
