//! The driver's memory pools: the bytes in use, and the bytes that are only cached.

use super::calls::Device;
use super::error::GpuError;

/// A number of bytes, and its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watermark {
    /// The current bytes.
    pub current_bytes: u64,
    /// The peak since the process began or the peaks were reset.
    pub peak_bytes: u64,
}

/// The statistics of the pool from which `cuMemAllocAsync` allocates. Each process has its own pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Bytes of the device that the pool has reserved.
    pub reserved: Watermark,
    /// The reserved bytes that the program uses. The rest is cached.
    pub used: Watermark,
    /// The pool releases reserved bytes above this number when the program synchronizes. The driver's default is 0.
    pub release_threshold_bytes: u64,
}

impl PoolStatistics {
    /// Returns the bytes that the pool has reserved and the program does not use.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved.current_bytes.saturating_sub(self.used.current_bytes)
    }
}

/// Returns the statistics of a CUDA device's current pool, by the device's number in this process.
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

/// Resets both peaks of a CUDA device's current pool to the current bytes.
///
/// # Errors
/// Those of [`pool_statistics`].
pub fn reset_pool_peaks(device: u32) -> Result<(), GpuError> {
    Device::new(device)?.reset_pool_highs()
}
