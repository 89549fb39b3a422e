//! The allocator's interface to a device: memory, events, and address space for expandable segments. Behind it is a
//! simulated device or a CUDA device.

#[cfg(feature = "cuda-stats")]
pub(crate) mod cuda_context;
#[cfg(feature = "cuda-stats")]
pub(crate) mod cuda_memory;
pub(crate) mod simulated;

use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::{DeviceProcess, MemoryInfo};
use std::fmt;

/// The reason a call to a device failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device does not have enough memory left. The allocator then releases its cache and tries again.
    OutOfMemory,
    /// Any other failure, with the driver's message.
    Failed(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("the device does not have enough memory left"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DeviceError {}

/// The memory of one device. [`SimulatedMemory`](crate::SimulatedMemory) has addresses but no memory.
///
/// The allocator calls these methods while it holds the device's lock. Different devices must have different addresses.
/// Every method fails if the driver fails.
pub trait DeviceMemory: Send + 'static {
    /// A point in a stream's work. Dropping an event releases it.
    type Event: Send;

    /// Allocates a segment of `size` bytes from the device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when there is not enough memory left.
    fn allocate(&self, size: u64) -> Result<u64, DeviceError>;

    /// Releases a segment.
    fn release(&self, address: u64) -> Result<(), DeviceError>;

    /// Returns the free and the total memory.
    fn memory_info(&self) -> Result<MemoryInfo, DeviceError>;

    /// Records an event after the work currently queued on a stream.
    fn record_event(&self, stream: StreamId) -> Result<Self::Event, DeviceError>;

    /// Returns whether the work before an event is done.
    ///
    /// # Errors
    /// Fails when that work has failed.
    fn is_done(&self, event: &Self::Event) -> Result<bool, DeviceError>;

    /// Waits until the work before an event is done.
    ///
    /// # Errors
    /// Fails when that work has failed.
    fn wait(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Waits until all work on a stream is done. Called before the stream's pages are unmapped.
    ///
    /// # Errors
    /// Fails when that work has failed.
    fn wait_for_stream(&self, stream: StreamId) -> Result<(), DeviceError>;

    /// Reserves address space that is not backed by memory.
    ///
    /// # Errors
    /// Fails when there is no address space left or the device does not support reservations.
    fn reserve(&self, size: u64) -> Result<u64, DeviceError>;

    /// Maps `size` bytes of memory at `address`, in pages of `page` bytes each. On failure, nothing is mapped.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when there is not enough memory left.
    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError>;

    /// Unmaps the `size` bytes of memory at `address`.
    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError>;

    /// Releases address space.
    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError>;

    /// Returns the processes that use the device, for messages. The list is empty if they are unknown.
    fn processes(&self) -> Vec<DeviceProcess> {
        Vec::new()
    }

    /// Returns the text of `torch.cuda.list_gpu_processes` for this device. `device` is its id in the allocator.
    fn list_gpu_processes(&self, device: DeviceId) -> Result<String, DeviceError> {
        let mut lines = vec![format!("GPU:{}", device.0)];
        let processes = self.processes();
        if processes.is_empty() {
            lines.push("no processes are running".into());
        }
        lines.extend(processes.into_iter().map(|process| {
            let mib = |bytes| format!("{:.3}", bytes as f64 / 1_048_576.0);
            let used = process.used_bytes.map_or("unknown".to_owned(), mib);
            format!("process {:>10} uses {used:>12} MB GPU memory", process.pid)
        }));
        Ok(lines.join("\n"))
    }

    /// Returns whether memtrack's driver hook records segments. If it does, the allocator need not report them.
    fn segments_are_recorded(&self) -> bool {
        false
    }

    /// Returns the key that orders the stream in PyTorch's hash tables. By default, it is the handle, as for streams
    /// that PyTorch did not create. The key affects only the order of events that complete together.
    fn stream_number(&self, stream: StreamId) -> u64 {
        stream.0
    }
}
