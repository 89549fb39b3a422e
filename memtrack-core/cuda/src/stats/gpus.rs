//! The machine's devices and their state: from NVML if it is installed, otherwise from the driver.

use super::calls::{self, Device};
use super::error::GpuError;
use super::memory_info::{MemoryInfo, mem_get_info};
use super::nvml::{nvml, nvml_error};
use super::pools::{PoolStatistics, pool_statistics};
use super::processes::{self, DeviceProcess};

/// One device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpu {
    /// The device's number in NVML, as shown by `nvidia-smi`; `None` without NVML.
    pub index: Option<u32>,
    /// The number that CUDA programs started in the same way use for the device; `None` if they may not use it.
    pub cuda_device: Option<u32>,
    /// The device's name.
    pub name: String,
    /// The device's UUID, such as `GPU-6d656d74-…`.
    pub uuid: String,
    /// The device's free and total memory.
    pub memory: MemoryInfo,
    /// The device's pool in this process; `None` if the device has none or CUDA programs may not use the device.
    pub pool: Option<PoolStatistics>,
    /// The processes that compute on the device; `None` if NVML does not report them.
    pub processes: Option<Vec<DeviceProcess>>,
}

/// All devices in the machine, and the reason if some data is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpus {
    /// The driver's version, such as `575.57.08`; `None` without NVML.
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, as (major, minor); `None` if the driver does not start.
    pub cuda_version: Option<(u32, u32)>,
    /// The devices, in NVML's order, or in the driver's order without NVML.
    pub gpus: Vec<Gpu>,
    /// The reason some data is missing, which is the error from the driver or from NVML.
    pub missing: Option<GpuError>,
}

impl Gpus {
    /// Creates a result without devices, for machines where neither the driver nor NVML answers. `missing` is the
    /// reason.
    #[must_use]
    pub const fn none(missing: GpuError) -> Self {
        Self { driver_version: None, cuda_version: None, gpus: Vec::new(), missing: Some(missing) }
    }
}

/// Returns the devices of this machine. NVML needs no context, so querying it uses no device memory.
///
/// # Errors
/// Fails when neither the driver nor NVML answers (the error is the driver's), or when a query about a device fails.
pub fn gpus() -> Result<Gpus, GpuError> {
    let (driver, nvml) = (cuda_devices(), nvml());
    match (driver, nvml) {
        (Err(driver), Err(_)) => Err(driver),
        (Ok(devices), Err(nvml)) => Ok(Gpus {
            driver_version: None,
            cuda_version: calls::version().ok(),
            gpus: devices
                .into_iter()
                .map(|(number, uuid)| from_driver(number, uuid))
                .collect::<Result<_, _>>()?,
            missing: Some(nvml),
        }),
        (driver, Ok(nvml)) => {
            let devices = driver.as_deref().unwrap_or_default();
            let count = nvml.device_count().map_err(nvml_error)?;
            let gpus = (0..count).map(|index| from_nvml(nvml, index, devices)).collect::<Result<_, _>>()?;
            Ok(Gpus {
                driver_version: nvml.sys_driver_version().ok(),
                cuda_version: calls::version().ok(),
                gpus,
                missing: driver.err(),
            })
        }
    }
}

/// Returns the number and UUID of each device that this process may use.
fn cuda_devices() -> Result<Vec<(u32, String)>, GpuError> {
    (0..calls::count()?).map(|number| Ok((number, Device::new(number)?.uuid()?))).collect()
}

fn from_driver(number: u32, uuid: String) -> Result<Gpu, GpuError> {
    Ok(Gpu {
        index: None,
        cuda_device: Some(number),
        name: Device::new(number)?.name()?,
        uuid,
        memory: mem_get_info(number)?,
        pool: pool(number)?,
        processes: None,
    })
}

fn from_nvml(nvml: &nvml_wrapper::Nvml, index: u32, devices: &[(u32, String)]) -> Result<Gpu, GpuError> {
    let device = nvml.device_by_index(index).map_err(nvml_error)?;
    let uuid = device.uuid().map_err(nvml_error)?;
    let memory = device.memory_info().map_err(nvml_error)?;
    let cuda_device = devices.iter().find(|(_, known)| *known == uuid).map(|&(number, _)| number);
    Ok(Gpu {
        index: Some(index),
        cuda_device,
        name: device.name().map_err(nvml_error)?,
        uuid,
        memory: MemoryInfo::new(memory.free, memory.total),
        pool: cuda_device.map(pool).transpose()?.flatten(),
        processes: processes::on_device(&device).ok(),
    })
}

fn pool(number: u32) -> Result<Option<PoolStatistics>, GpuError> {
    match pool_statistics(number) {
        Ok(statistics) => Ok(Some(statistics)),
        Err(GpuError::NoPools { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
