//! NVML: loads it once, if it is installed, and queries the processes that use a device.

use super::calls;
use super::error::GpuError;
pub use memtrack_model::DeviceProcess;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::error::Error;
use std::fmt::Write;
use std::sync::OnceLock;

/// Returns NVML, which is loaded by the first call.
///
/// # Errors
/// Fails when NVML is not installed or fails, or when its driver is not loaded.
pub(super) fn nvml() -> Result<&'static Nvml, GpuError> {
    static NVML: OnceLock<Result<Nvml, GpuError>> = OnceLock::new();
    NVML.get_or_init(|| Nvml::init().map_err(nvml_error)).as_ref().map_err(Clone::clone)
}

/// Converts an NVML error.
pub(super) fn nvml_error(error: NvmlError) -> GpuError {
    match error {
        // The source is the loader's own message.
        NvmlError::LibloadingError(error) => {
            GpuError::NoNvml(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        }
        NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => GpuError::NoNvml(error.to_string()),
        _ => GpuError::Nvml(error.to_string()),
    }
}

/// Returns the processes that compute on a CUDA device, given the device's number in this process.
///
/// # Errors
/// Fails when NVML is missing or fails, or when there is no such device.
pub fn gpu_processes(device: u32) -> Result<Vec<DeviceProcess>, GpuError> {
    on_device(&nvml_device(device)?)
}

/// Returns the text of `torch.cuda.list_gpu_processes`: the device's number in NVML, followed by one line per process.
///
/// # Errors
/// Fails when NVML fails or there is no such device. If NVML or its driver is missing, returns the text with which
/// PyTorch reports this.
pub fn list_gpu_processes(device: u32) -> Result<String, GpuError> {
    let handle = match nvml_device(device) {
        Err(GpuError::NoNvml(_)) => return Ok("cuda driver can't be loaded, is cuda enabled?".to_owned()),
        handle => handle?,
    };
    let mut text = format!("GPU:{}", handle.index().map_err(nvml_error)?);
    let processes = on_device(&handle)?;
    if processes.is_empty() {
        text.push_str("\nno processes are running");
    }
    for DeviceProcess { pid, used_bytes, .. } in processes {
        // PyTorch divides by 1024 twice and calls the unit MB. It cannot print values that NVML does not report.
        let used = used_bytes
            .map_or("unknown".to_owned(), |bytes| format!("{:.3}", bytes as f64 / f64::from(1 << 20)));
        // Writing to a string cannot fail.
        let _ = write!(text, "\nprocess {pid:>10} uses {used:>12} MB GPU memory");
    }
    Ok(text)
}

/// Returns the processes on an NVML device.
pub(super) fn on_device(device: &nvml_wrapper::Device<'_>) -> Result<Vec<DeviceProcess>, GpuError> {
    let processes = device.running_compute_processes().map_err(nvml_error)?;
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

/// Returns the NVML device that corresponds to a CUDA device. CUDA and NVML number devices differently under
/// `CUDA_VISIBLE_DEVICES`, so the device is found by its UUID, or by its number if the driver does not start.
fn nvml_device(device: u32) -> Result<nvml_wrapper::Device<'static>, GpuError> {
    let nvml = nvml()?;
    match calls::Device::new(device).and_then(calls::Device::uuid) {
        Ok(uuid) => nvml.device_by_uuid(uuid).map_err(nvml_error),
        Err(GpuError::NoSuchDevice { device, count }) => Err(GpuError::NoSuchDevice { device, count }),
        Err(_) => {
            let count = nvml.device_count().map_err(nvml_error)?;
            if device >= count {
                return Err(GpuError::NoSuchDevice { device, count });
            }
            nvml.device_by_index(device).map_err(nvml_error)
        }
    }
}
