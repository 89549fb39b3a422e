//! The report of an out-of-memory event.

use crate::event::{DeviceId, StreamId};
use crate::units::Bytes;
use std::fmt;

/// An out-of-memory event, as received by observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The device.
    pub device: DeviceId,
    /// The stream that the block was for.
    pub stream: StreamId,
    /// The number of bytes that were requested.
    pub requested_bytes: u64,
    /// The number of free bytes, as reported by the device.
    pub device_free_bytes: u64,
    /// The total bytes of the device, or of the part that the allocator may use; 0 if unknown.
    pub device_total_bytes: u64,
}

impl OutOfMemory {
    /// Creates the event from the arguments of `record_oom`. Unknown numbers of bytes are 0.
    #[must_use]
    pub const fn new(
        device: DeviceId,
        stream: StreamId,
        requested_bytes: u64,
        device_free_bytes: u64,
        device_total_bytes: u64,
    ) -> Self {
        Self { device, stream, requested_bytes, device_free_bytes, device_total_bytes }
    }
}

impl fmt::Display for OutOfMemory {
    /// Formats the event as `out of memory on device 0: 2.00 GiB requested, 512.0 MiB free of 8.00 GiB`. For the host
    /// heap, the text contains only the requested bytes. Allocates nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requested, free) = (Bytes(self.requested_bytes), Bytes(self.device_free_bytes));
        write!(f, "out of memory on {}: {requested} requested", self.device)?;
        if self.device.is_host() {
            // The free bytes of a heap are unknown.
            return Ok(());
        }
        write!(f, ", {free} free")?;
        match self.device_total_bytes {
            0 => Ok(()),
            total => write!(f, " of {}", Bytes(total)),
        }
    }
}
