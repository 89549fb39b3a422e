//! Reports of allocators in a build without the recorder.

pub use super::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};

use memtrack_model::event::{DeviceId, StreamId};

/// A block was handed out; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// A block is freed; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// The free of a block is requested, and other streams may still use it; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_free_requested(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// A free requested earlier is complete; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_free_completed(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// A segment was taken from the driver; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_segment_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// A segment is given back to the driver; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_segment_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Pages were mapped into an expandable segment; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_segment_map(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Pages are unmapped from an expandable segment; without the recorder nothing is recorded.
#[inline(always)]
pub fn record_segment_unmap(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Memory ran out; without the recorder nothing is recorded and no observer is called.
#[inline(always)]
pub fn record_oom(
    _device: DeviceId,
    _stream: StreamId,
    _requested_bytes: u64,
    _device_free_bytes: u64,
    _device_total_bytes: u64,
) {
}
