//! The driver's own memory pools: leak or cache?

use super::calls::Device;
use super::error::GpuError;

/// A number of bytes and the most it ever was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watermark {
    /// Bytes now.
    pub current_bytes: u64,
    /// The most bytes since the process began or the peaks were reset.
    pub peak_bytes: u64,
}

/// The pool that `cuMemAllocAsync` takes from. Pools are a process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Bytes of the device that the pool holds.
    pub reserved: Watermark,
    /// The part of these bytes that the program holds. The rest is cache.
    pub used: Watermark,
    /// Bytes above this go back to the device when the program waits for it. 0 is the driver's default.
    pub release_threshold_bytes: u64,
}

impl PoolStatistics {
    /// Bytes that the pool keeps unused.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.reserved.current_bytes.saturating_sub(self.used.current_bytes)
    }
}

/// Returns the current pool of a CUDA device, by the device's number in this process.
///
/// # Errors
/// Fails when there is no driver, it fails, there is no such device, or the device has no pools.
pub fn pool_statistics(device: u32) -> Result<PoolStatistics, GpuError> {
    let bytes = Device::new(device)?.pool_bytes()?;
    Ok(PoolStatistics {
        reserved: Watermark { current_bytes: bytes.reserved, peak_bytes: bytes.reserved_high },
        used: Watermark { current_bytes: bytes.used, peak_bytes: bytes.used_high },
        release_threshold_bytes: bytes.release_threshold,
    })
}

/// Resets both peaks of that pool to its current numbers.
///
/// # Errors
/// Those of [`pool_statistics`].
pub fn reset_pool_peaks(device: u32) -> Result<(), GpuError> {
    Device::new(device)?.reset_pool_highs()
}
