//! The backends, as PyTorch calls the allocators that a program can choose from. [`Backend`] is the common interface;
//! `native` is this package's caching allocator, `malloc_async` uses the driver's pool, and `pluggable` loads an
//! allocator from a shared library. Calls that a backend does not support fail with PyTorch's messages.
//!
//! **Why a trait and not a type?** It lets a program choose the backend at run time. The caching allocator supports
//! every call, so it also has four of them as inherent methods that cannot fail (`record_stream`,
//! `record_memory_history`, `snapshot`, `attach_out_of_memory_observer`).

#[cfg(feature = "cuda-stats")]
mod malloc_async;
mod native;
#[cfg(feature = "cuda-stats")]
mod pluggable;

#[cfg(feature = "cuda-stats")]
pub use malloc_async::CudaMallocAsync;
#[cfg(feature = "cuda-stats")]
pub use pluggable::{Pluggable, PluggableError};

use crate::api::stats_report::memory_summary;
use crate::error::AllocatorError;
use crate::error::OutOfMemoryError;
use crate::state::history::HistoryOptions;
use crate::state::stats::DeviceStats;
use memtrack_model::MemoryInfo;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::collections::BTreeMap;
use std::fmt;

/// A callback for failed allocations.
pub type OomObserver = Box<dyn Fn(&OutOfMemoryError) + Send + Sync>;

/// An allocator that provides the functions of `torch.cuda.memory`. All sizes are in bytes.
///
/// Every method fails if there is no such device or the driver fails, and returns [`AllocatorError::Unsupported`] if
/// the backend does not support the call at all.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns PyTorch's name for the backend.
    fn get_allocator_backend(&self) -> &'static str;

    /// Allocates memory for work on `stream`; returns 0 for 0 bytes.
    ///
    /// # Errors
    /// [`AllocatorError::OutOfMemory`] when there is not enough memory.
    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError>;

    /// Frees memory. The address 0 is ignored.
    ///
    /// # Errors
    /// Fails when the address was never allocated or has already been freed.
    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError>;

    /// Records that `stream` also uses the memory at `address`.
    ///
    /// # Errors
    /// Fails when the backend checks the address and does not know it.
    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError>;

    /// Releases cached memory to the devices.
    ///
    /// # Errors
    /// Fails when a device fails.
    fn empty_cache(&self) -> Result<(), AllocatorError>;

    /// Limits memory use to a share of the device's memory.
    ///
    /// # Errors
    /// Fails when `fraction` is not between 0 and 1.
    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError>;

    /// Returns the share of the device's memory that may be used.
    fn get_per_process_memory_fraction(&self, device: DeviceId) -> Result<f64, AllocatorError>;

    /// Returns all statistics of a device; values that the backend does not track are 0.
    fn statistics(&self, device: DeviceId) -> Result<DeviceStats, AllocatorError>;

    /// Resets every peak to the current value.
    fn reset_peak_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError>;

    /// Resets sums and counters to 0.
    fn reset_accumulated_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError>;

    /// Returns the device's free and total memory.
    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError>;

    /// Starts recording events; `None` stops recording.
    fn record_memory_history(&self, options: Option<&HistoryOptions>) -> Result<(), AllocatorError>;

    /// Returns segments, blocks, recorded events and settings.
    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError>;

    /// Attaches an observer that is called each time memory runs out.
    fn attach_out_of_memory_observer(&self, observer: OomObserver) -> Result<(), AllocatorError>;

    /// Returns the statistics under dotted keys, sorted by key.
    fn memory_stats(&self, device: DeviceId) -> Result<BTreeMap<String, i64>, AllocatorError> {
        Ok(self.statistics(device)?.flat())
    }

    /// Returns the statistics as nested dictionaries.
    fn memory_stats_as_nested_dict(&self, device: DeviceId) -> Result<serde_json::Value, AllocatorError> {
        Ok(self.statistics(device)?.nested())
    }

    /// Returns the number of bytes currently allocated.
    fn memory_allocated(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.statistics(device)?.allocated_bytes.all.current as u64)
    }

    /// Returns the peak number of allocated bytes.
    fn max_memory_allocated(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.statistics(device)?.allocated_bytes.all.peak as u64)
    }

    /// Returns the number of bytes currently reserved from the device.
    fn memory_reserved(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.statistics(device)?.reserved_bytes.all.current as u64)
    }

    /// Returns the peak number of bytes reserved from the device.
    fn max_memory_reserved(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.statistics(device)?.reserved_bytes.all.peak as u64)
    }

    /// Formats the statistics as PyTorch's table; `abbreviated` omits the rows for the small and large pools.
    fn memory_summary(&self, device: DeviceId, abbreviated: bool) -> Result<String, AllocatorError> {
        Ok(memory_summary(&self.statistics(device)?, device.0, abbreviated))
    }
}

/// Creates the backend that the settings select, `backend:native` or `backend:cudaMallocAsync`, for all CUDA devices
/// that this process may use.
///
/// # Errors
/// Fails when there is no CUDA driver or the driver fails.
#[cfg(feature = "cuda-stats")]
pub fn cuda_backend(settings: &super::Settings) -> Result<Box<dyn Backend>, AllocatorError> {
    use super::{AllocatorBackend, CachingAllocator, CudaMemory};
    Ok(match settings.backend() {
        AllocatorBackend::Native => Box::new(CachingAllocator::new(CudaMemory::all()?, settings)?),
        AllocatorBackend::CudaMallocAsync => Box::new(CudaMallocAsync::new()?),
    })
}

/// Checks that the fraction is between 0 and 1 and returns it.
fn check_fraction(fraction: f64) -> Result<f64, AllocatorError> {
    if (0.0..=1.0).contains(&fraction) {
        Ok(fraction)
    } else {
        Err(AllocatorError::InvalidFraction(fraction))
    }
}

/// Returns the error for a call that a backend does not support, with PyTorch's message.
#[cfg(feature = "cuda-stats")]
fn unsupported_error<T>(backend: &str, what: &str) -> Result<T, AllocatorError> {
    Err(AllocatorError::Unsupported(format!(
        "{backend} does not yet support {what}. If you need it, please file an issue describing your use case."
    )))
}
