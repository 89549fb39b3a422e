//! How much of a device is free, and how much of it belongs to others.

use super::calls::Device;
use super::error::GpuError;

/// A device's memory, of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes the device has.
    pub total_bytes: u64,
}

impl MemoryInfo {
    /// Bytes in use, by whomever.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }

    /// Bytes in use that are not among the `tracked_bytes`: contexts, modules, libraries' workspaces, rounding, pools'
    /// unused memory, other processes. 0 where more is tracked than in use, as with managed memory that is on the host.
    #[must_use]
    pub fn untracked_bytes(&self, tracked_bytes: u64) -> u64 {
        self.used_bytes().saturating_sub(tracked_bytes)
    }
}

/// Free and total memory of a CUDA device, by its number in this process, as `torch.cuda.mem_get_info`.
///
/// A process without a context on the device gets one for the duration of the query, which takes a moment and a few
/// hundred megabytes of the device.
///
/// # Errors
/// When there is no driver, it fails, or there is no such device.
pub fn mem_get_info(device: u32) -> Result<MemoryInfo, GpuError> {
    let (free_bytes, total_bytes) = Device::new(device)?.memory()?;
    Ok(MemoryInfo { free_bytes, total_bytes })
}
