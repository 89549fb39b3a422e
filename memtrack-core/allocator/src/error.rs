//! Allocator errors, with PyTorch's text where PyTorch has the same error.

use crate::memory::DeviceError;
use crate::settings::SettingsError;
use crate::settings::sizes::format_size;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::MempoolId;
use std::fmt;

/// An allocation that failed because memory ran out. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemoryError {
    /// The facts that every allocator reports.
    pub facts: OutOfMemory,
    /// The size of the segment that was requested.
    pub segment_bytes: u64,
    /// The limit on the device's memory; `None` means no limit.
    pub limit_bytes: Option<u64>,
    /// PyTorch's message.
    pub message: String,
}

/// A request that was rejected because a new segment for it would have exceeded the share of the device's memory
/// set by `per_process_memory_fraction`. As in PyTorch, no event is recorded for a rejection, either in
/// histories or by memtrack's recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomRejection {
    /// The device.
    pub device: DeviceId,
    /// The stream that the request was for.
    pub stream: StreamId,
    /// The number of bytes requested.
    pub requested_bytes: u64,
    /// The number of bytes that the allocator had reserved from the device.
    pub reserved_bytes: u64,
    /// The device's total memory in bytes.
    pub device_total_bytes: u64,
}

/// An allocator error. The allocator's state is unchanged, except that a failed allocation may have released memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AllocatorError {
    /// There is not enough memory, even after releasing the whole cache.
    OutOfMemory(Box<OutOfMemoryError>),
    /// The request was rejected before a segment was requested from the device, because of
    /// `throw_on_cudamalloc_oom`.
    OomRejection(OomRejection),
    /// The request is 1 EiB or more.
    TooLarge,
    /// No allocated block starts at the address: the block was already freed, or it is from another allocator.
    InvalidPointer(u64),
    /// There is no such device.
    InvalidDevice {
        /// The requested device.
        device: u16,
        /// The number of devices.
        devices: usize,
    },
    /// The memory fraction is not between 0 and 1.
    InvalidFraction(f64),
    /// The settings string is invalid.
    Settings(SettingsError),
    /// The pool was released. Its live blocks remain, but no more memory is allocated in it.
    PoolReleased(MempoolId),
    /// A route to the pool already exists.
    AlreadyRouted(MempoolId),
    /// There is no route to the pool.
    NotRouted(MempoolId),
    /// The backend does not support the call. The text is PyTorch's message.
    Unsupported(String),
    /// The device failed for another reason.
    Device(DeviceError),
}

impl AllocatorError {
    /// Returns whether a request failed because memory ran out or a limit was exceeded.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::OomRejection(_) | Self::TooLarge)
    }

    /// Returns the name of the Python exception that PyTorch raises for this error.
    pub fn kind(&self) -> &'static str {
        match self {
            _ if self.is_out_of_memory() => "OutOfMemoryError",
            Self::InvalidFraction(_) => "ValueError",
            Self::Settings(error) => error.kind(),
            Self::InvalidDevice { .. } => "AcceleratorError",
            _ => "RuntimeError",
        }
    }
}

impl fmt::Display for AllocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(error) => f.write_str(&error.message),
            Self::OomRejection(rejection) => write!(
                f,
                "CUDA out of memory. Allocation was preemptively rejected because it would exceed \
                 per_process_memory_fraction limit. Requested size: {}",
                format_size(rejection.requested_bytes)
            ),
            Self::TooLarge => f.write_str("CUDA out of memory. Tried to allocate more than 1EB memory."),
            Self::InvalidPointer(address) => {
                write!(
                    f,
                    "invalid device pointer: {address:#x} (no allocated block begins there: it was freed \
                     already, or it is from another allocator)"
                )
            }
            Self::InvalidDevice { device, devices } => {
                write!(f, "invalid device ordinal: {device} (there are {devices} devices)")
            }
            Self::InvalidFraction(fraction) => {
                let fraction = memtrack_model::python_float::python_float_repr(*fraction);
                write!(f, "Invalid fraction value: {fraction}. Allowed range: 0~1")
            }
            Self::Settings(error) => error.fmt(f),
            Self::PoolReleased((a, b)) => {
                write!(f, "INTERNAL ASSERT FAILED: memory pool ({a}, {b}) was released, make a new one")
            }
            Self::AlreadyRouted((a, b)) => {
                write!(f, "beginAllocateToPool: already recording to mempool_id ({a}, {b})")
            }
            Self::NotRouted((a, b)) => {
                write!(f, "endAllocatePool: not currently recording to mempool_id ({a}, {b})")
            }
            Self::Unsupported(text) => f.write_str(text),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AllocatorError {}

impl From<DeviceError> for AllocatorError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<SettingsError> for AllocatorError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

#[cfg(feature = "cuda-stats")]
impl From<memtrack_cuda::GpuError> for AllocatorError {
    fn from(error: memtrack_cuda::GpuError) -> Self {
        Self::Device(DeviceError::Failed(error.to_string()))
    }
}
