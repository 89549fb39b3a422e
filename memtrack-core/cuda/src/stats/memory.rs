//! A device's memory: how much is free, and how much of it the driver's memory pools use or only cache.

use super::calls::Device;
use super::error::GpuError;
pub use memtrack_model::MemoryInfo;
use serde::Serialize;

/// Returns the free and total memory of a CUDA device, given its number in this process, like
/// `torch.cuda.mem_get_info`.
///
/// If the process has no context on the device, one is created for the query, which takes a moment and a few hundred
/// megabytes of the device's memory.
///
/// # Errors
/// Fails when there is no driver or no such device, or the driver fails.
pub fn mem_get_info(device: u32) -> Result<MemoryInfo, GpuError> {
    let (free_bytes, total_bytes) = Device::new(device)?.memory()?;
    Ok(MemoryInfo::new(free_bytes, total_bytes))
}

/// The statistics of the pool from which `cuMemAllocAsync` allocates. Each process has its own pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PoolStatistics {
    /// The number of bytes of device memory that the pool has reserved.
    pub reserved_bytes: u64,
    /// The peak number of bytes that the pool has reserved, since the process started or the peaks were last reset.
    pub reserved_peak_bytes: u64,
    /// The number of reserved bytes that the program uses. The rest are cached.
    pub used_bytes: u64,
    /// The peak number of bytes that the program used, since the process started or the peaks were last reset.
    pub used_peak_bytes: u64,
    /// The pool releases reserved bytes beyond this number when the program synchronizes. The driver's default is 0.
    pub release_threshold_bytes: u64,
}

impl PoolStatistics {
    /// Returns the number of bytes that the pool has reserved but the program does not use.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.used_bytes)
    }
}

/// Returns the statistics of a CUDA device's current pool, given the device's number in this process.
///
/// # Errors
/// Fails when there is no driver or no such device, the device has no pools, or the driver fails.
pub fn pool_statistics(device: u32) -> Result<PoolStatistics, GpuError> {
    Device::new(device)?.pool_statistics()
}

/// Resets both peaks of a CUDA device's current pool to the current numbers of bytes.
///
/// # Errors
/// The same as for [`pool_statistics`].
pub fn reset_pool_peaks(device: u32) -> Result<(), GpuError> {
    Device::new(device)?.reset_pool_highs()
}
