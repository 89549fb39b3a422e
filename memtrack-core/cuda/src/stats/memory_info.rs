//! The free memory of a device, and the memory of other processes on it.

use super::calls::Device;
use super::error::GpuError;
pub use memtrack_model::MemoryInfo;

/// Free and total memory of a CUDA device, by its number in this process, as `torch.cuda.mem_get_info`.
///
/// A process without a context on the device gets one for the duration of the query, which takes a moment and a few
/// hundred megabytes of the device.
///
/// # Errors
/// Fails when there is no driver, it fails, or there is no such device.
pub fn mem_get_info(device: u32) -> Result<MemoryInfo, GpuError> {
    let (free_bytes, total_bytes) = Device::new(device)?.memory()?;
    Ok(MemoryInfo::new(free_bytes, total_bytes))
}
