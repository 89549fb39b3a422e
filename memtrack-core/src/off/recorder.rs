//! The functions that allocators use to report events, in builds without the recorder.

pub use super::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};
pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};

use memtrack_model::event::{DeviceId, StreamId};

/// Records an allocated block. Does nothing without the recorder.
#[inline(always)]
pub fn record_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records the free of a block. Does nothing without the recorder.
#[inline(always)]
pub fn record_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that the free of a block was requested while other streams may still use it. Does nothing without the
/// recorder.
#[inline(always)]
pub fn record_free_requested(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that a previously requested free is complete. Does nothing without the recorder.
#[inline(always)]
pub fn record_free_completed(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that a segment was obtained from the driver. Does nothing without the recorder.
#[inline(always)]
pub fn record_segment_alloc(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that a segment is being released to the driver. Does nothing without the recorder.
#[inline(always)]
pub fn record_segment_free(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that pages were mapped into an expandable segment. Does nothing without the recorder.
#[inline(always)]
pub fn record_segment_map(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that pages are being unmapped from an expandable segment. Does nothing without the recorder.
#[inline(always)]
pub fn record_segment_unmap(_device: DeviceId, _stream: StreamId, _address: u64, _size_bytes: u64) {}

/// Records that memory ran out. Without the recorder, this does nothing and calls no observers.
#[inline(always)]
pub fn record_oom(
    _device: DeviceId,
    _stream: StreamId,
    _requested_bytes: u64,
    _device_free_bytes: u64,
    _device_total_bytes: u64,
) {
}
