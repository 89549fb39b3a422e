//! The driver's memory pools: how many bytes are in use, and how many are only cached.

use super::calls::Device;
use super::error::GpuError;

/// A number of bytes and its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watermark {
    /// The current number of bytes.
    pub current_bytes: u64,
    /// The peak since the process started or the peaks were last reset.
    pub peak_bytes: u64,
}

/// The statistics of the pool from which `cuMemAllocAsync` allocates. Each process has its own pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// The bytes of device memory that the pool has reserved.
    pub reserved: Watermark,
    /// The reserved bytes that the program uses. The rest are cached.
    pub used: Watermark,
    /// The pool releases reserved bytes beyond this number when the program synchronizes. The driver's default is 0.
    pub release_threshold_bytes: u64,
}

impl PoolStatistics {
    /// Returns the number of bytes that the pool has reserved but the program does not use.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved.current_bytes.saturating_sub(self.used.current_bytes)
    }
}

/// Returns the statistics of a CUDA device's current pool, given the device's number in this process.
///
/// # Errors
/// Fails when there is no driver or no such device, the device has no pools, or the driver fails.
pub fn pool_statistics(device: u32) -> Result<PoolStatistics, GpuError> {
    let bytes = Device::new(device)?.pool_bytes()?;
    Ok(PoolStatistics {
        reserved: Watermark { current_bytes: bytes.reserved, peak_bytes: bytes.reserved_high },
        used: Watermark { current_bytes: bytes.used, peak_bytes: bytes.used_high },
        release_threshold_bytes: bytes.release_threshold,
    })
}

/// Resets both peaks of a CUDA device's current pool to the current numbers of bytes.
///
/// # Errors
/// The same as for [`pool_statistics`].
pub fn reset_pool_peaks(device: u32) -> Result<(), GpuError> {
    Device::new(device)?.reset_pool_highs()
}
