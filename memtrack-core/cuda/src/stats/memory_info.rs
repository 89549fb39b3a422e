//! The free and total memory of a device.

use super::calls::Device;
use super::error::GpuError;
pub use memtrack_model::MemoryInfo;

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
