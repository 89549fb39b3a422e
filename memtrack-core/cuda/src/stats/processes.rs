//! Which processes use a device.

use super::calls;
use super::error::GpuError;
use super::nvml::{explained, nvml};
pub use memtrack_model::DeviceProcess;
use nvml_wrapper::enums::device::UsedGpuMemory;
use std::fmt::Write;

/// Returns the processes that compute on a CUDA device, by the device's number in this process.
///
/// # Errors
/// Fails when NVML is missing or fails, or there is no such device.
pub fn gpu_processes(device: u32) -> Result<Vec<DeviceProcess>, GpuError> {
    of(&in_nvml(device)?)
}

/// Returns the text of `torch.cuda.list_gpu_processes`: the device by NVML's number, then a line per process.
///
/// # Errors
/// Fails when NVML fails, or there is no such device. If NVML or its driver is missing, the text contains that, as
/// PyTorch's does.
pub fn list_gpu_processes(device: u32) -> Result<String, GpuError> {
    let handle = match in_nvml(device) {
        Err(GpuError::NoNvml(_)) => return Ok("cuda driver can't be loaded, is cuda enabled?".to_owned()),
        handle => handle?,
    };
    let mut text = format!("GPU:{}", handle.index().map_err(explained)?);
    let processes = of(&handle)?;
    if processes.is_empty() {
        text.push_str("\nno processes are running");
    }
    for DeviceProcess { pid, used_bytes, .. } in processes {
        // PyTorch divides by 1024 twice and calls the unit MB; it cannot print values that NVML does not report.
        let used = used_bytes
            .map_or("unknown".to_owned(), |bytes| format!("{:.3}", bytes as f64 / f64::from(1 << 20)));
        // Writing to a string cannot fail.
        let _ = write!(text, "\nprocess {pid:>10} uses {used:>12} MB GPU memory");
    }
    Ok(text)
}

/// Returns the processes of an NVML device.
pub(super) fn of(device: &nvml_wrapper::Device<'_>) -> Result<Vec<DeviceProcess>, GpuError> {
    let processes = device.running_compute_processes().map_err(explained)?;
    Ok(processes
        .into_iter()
        .map(|process| {
            let used_bytes = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            DeviceProcess::new(process.pid, used_bytes)
        })
        .collect())
}

/// Returns NVML's device for the driver's. They number differently under `CUDA_VISIBLE_DEVICES`, so the identity
/// decides; if the driver does not start there is only the number.
fn in_nvml(device: u32) -> Result<nvml_wrapper::Device<'static>, GpuError> {
    let nvml = nvml()?;
    match calls::Device::new(device).and_then(calls::Device::uuid) {
        Ok(uuid) => nvml.device_by_uuid(uuid).map_err(explained),
        Err(GpuError::NoSuchDevice { device, count }) => Err(GpuError::NoSuchDevice { device, count }),
        Err(_) => {
            let count = nvml.device_count().map_err(explained)?;
            if device >= count {
                return Err(GpuError::NoSuchDevice { device, count });
            }
            nvml.device_by_index(device).map_err(explained)
        }
    }
}
