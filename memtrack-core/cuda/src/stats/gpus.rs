//! The machine's devices on one page: from NVML if it is installed, else from the driver.

use super::calls::{self, Device};
use super::error::GpuError;
use super::memory_info::{MemoryInfo, mem_get_info};
use super::nvml::{explained, nvml};
use super::pools::{PoolStatistics, pool_statistics};
use super::processes::{self, DeviceProcess};

/// One device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpu {
    /// Its number in NVML, which `nvidia-smi` shows; none without NVML.
    pub index: Option<u32>,
    /// Its number for CUDA programs started as this one was; none where they may not use it.
    pub cuda_device: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its identity, such as `GPU-6d656d74-…`.
    pub uuid: String,
    /// Its memory.
    pub memory: MemoryInfo,
    /// Its pool in this process; none where it has none or CUDA programs may not use it.
    pub pool: Option<PoolStatistics>,
    /// The processes that compute on it; none where NVML does not report them.
    pub processes: Option<Vec<DeviceProcess>>,
}

/// All devices, and what could not be queried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpus {
    /// The driver's version, such as `575.57.08`; none without NVML.
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, as major and minor; none if it does not start.
    pub cuda_version: Option<(u32, u32)>,
    /// The devices, in NVML's order, or else the driver's.
    pub gpus: Vec<Gpu>,
    /// Why something of this is missing: the driver or NVML, one of them at most.
    pub missing: Option<GpuError>,
}

impl Gpus {
    /// Neither the driver nor NVML answered, and why.
    #[must_use]
    pub const fn none(missing: GpuError) -> Self {
        Self { driver_version: None, cuda_version: None, gpus: Vec::new(), missing: Some(missing) }
    }
}

/// Returns the devices of this machine. NVML needs no context, so with it no device memory is used.
///
/// # Errors
/// Fails when neither the driver nor NVML answers (the error is the driver's), or a device fails meanwhile.
pub fn gpus() -> Result<Gpus, GpuError> {
    let (driver, nvml) = (cuda_devices(), nvml());
    match (driver, nvml) {
        (Err(driver), Err(_)) => Err(driver),
        (Ok(devices), Err(nvml)) => Ok(Gpus {
            driver_version: None,
            cuda_version: calls::version().ok(),
            gpus: devices
                .into_iter()
                .map(|(number, uuid)| by_driver(number, uuid))
                .collect::<Result<_, _>>()?,
            missing: Some(nvml),
        }),
        (driver, Ok(nvml)) => {
            let devices = driver.as_deref().unwrap_or_default();
            let count = nvml.device_count().map_err(explained)?;
            let gpus = (0..count).map(|index| by_nvml(nvml, index, devices)).collect::<Result<_, _>>()?;
            Ok(Gpus {
                driver_version: nvml.sys_driver_version().ok(),
                cuda_version: calls::version().ok(),
                gpus,
                missing: driver.err(),
            })
        }
    }
}

/// Number and identity of each device that this process may use.
fn cuda_devices() -> Result<Vec<(u32, String)>, GpuError> {
    (0..calls::count()?).map(|number| Ok((number, Device::new(number)?.uuid()?))).collect()
}

fn by_driver(number: u32, uuid: String) -> Result<Gpu, GpuError> {
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

fn by_nvml(nvml: &nvml_wrapper::Nvml, index: u32, devices: &[(u32, String)]) -> Result<Gpu, GpuError> {
    let device = nvml.device_by_index(index).map_err(explained)?;
    let uuid = device.uuid().map_err(explained)?;
    let memory = device.memory_info().map_err(explained)?;
    let cuda_device = devices.iter().find(|(_, known)| *known == uuid).map(|&(number, _)| number);
    Ok(Gpu {
        index: Some(index),
        cuda_device,
        name: device.name().map_err(explained)?,
        uuid,
        memory: MemoryInfo::new(memory.free, memory.total),
        pool: cuda_device.map(pool).transpose()?.flatten(),
        processes: processes::of(&device).ok(),
    })
}

fn pool(number: u32) -> Result<Option<PoolStatistics>, GpuError> {
    match pool_statistics(number) {
        Ok(statistics) => Ok(Some(statistics)),
        Err(GpuError::NoPools { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
