//! The machine's devices and their state: from NVML if it is installed, otherwise from the driver.

use super::calls::{self, Device};
use super::error::GpuError;
use super::memory::{MemoryInfo, PoolStatistics, mem_get_info, pool_statistics};
use super::nvml::{DeviceProcess, nvml, nvml_error, on_device};
use memtrack_model::answer::{DeviceAnswer, DeviceKind};
use memtrack_model::units::{human_bytes, printable};
use serde::Serialize;
use std::fmt;

/// One device in the machine.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Gpu {
    /// The device: its name, and the number that CUDA programs started in the same way use for it (null if
    /// they may not use it).
    pub device: DeviceAnswer,
    /// The device's number in NVML, as shown by `nvidia-smi`; null without NVML.
    pub index: Option<u32>,
    /// The device's UUID, such as `GPU-6d656d74-…`.
    pub uuid: String,
    /// The number of bytes of the device's memory that all processes together use.
    pub used_bytes: u64,
    /// The number of free bytes of the device's memory.
    pub free_bytes: u64,
    /// The total number of bytes of the device's memory.
    pub total_bytes: u64,
    /// The device's memory pool in this process; null if the device has none or CUDA programs may not use the device.
    pub pool: Option<PoolStatistics>,
    /// The processes that compute on the device; null if NVML does not report them.
    pub processes: Option<Vec<DeviceProcess>>,
}

/// The machine's devices, as `memtrack gpus` prints them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Gpus {
    /// The version of the NVIDIA driver, such as `575.57.08`; null without NVML.
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, such as `12.9`; null if the driver does not start.
    pub cuda_version: Option<String>,
    /// The devices, in NVML's order, or in the driver's order without NVML.
    pub gpus: Vec<Gpu>,
    /// The reason some values are null: the error of the driver or of NVML; null if both answered.
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

impl Gpu {
    fn new(name: String, uuid: String, memory: MemoryInfo) -> Self {
        Self {
            device: DeviceAnswer { number: None, kind: DeviceKind::Device, name },
            index: None,
            uuid,
            used_bytes: memory.used_bytes(),
            free_bytes: memory.free_bytes,
            total_bytes: memory.total_bytes,
            pool: None,
            processes: None,
        }
    }

    /// Adds the number that CUDA programs use for the device, and its pool.
    fn with_cuda_number(mut self, number: u32) -> Result<Self, GpuError> {
        self.device.number = u16::try_from(number).ok();
        self.pool = match pool_statistics(number) {
            Err(GpuError::NoPools { .. }) => None,
            statistics => Some(statistics?),
        };
        Ok(self)
    }
}

fn from_driver(number: u32, uuid: String) -> Result<Gpu, GpuError> {
    Gpu::new(Device::new(number)?.name()?, uuid, mem_get_info(number)?).with_cuda_number(number)
}

fn from_nvml(nvml: &nvml_wrapper::Nvml, index: u32, devices: &[(u32, String)]) -> Result<Gpu, GpuError> {
    let device = nvml.device_by_index(index).map_err(nvml_error)?;
    let uuid = device.uuid().map_err(nvml_error)?;
    let memory = device.memory_info().map_err(nvml_error)?;
    let name = device.name().map_err(nvml_error)?;
    let number = devices.iter().find(|(_, known)| *known == uuid).map(|&(number, _)| number);
    let gpu = Gpu {
        index: Some(index),
        processes: on_device(&device).ok(),
        ..Gpu::new(name, uuid, MemoryInfo::new(memory.free, memory.total))
    };
    match number {
        Some(number) => gpu.with_cuda_number(number),
        None => Ok(gpu),
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver_version.as_ref().map(|version| format!("driver {}", printable(version)));
        let cuda = self.cuda_version.as_ref().map(|version| format!("CUDA {version}"));
        let versions: Vec<String> = driver.into_iter().chain(cuda).collect();
        if !versions.is_empty() {
            writeln!(f, "{}", versions.join(", "))?;
        }
        if self.gpus.is_empty() {
            writeln!(f, "The machine has no device.")?;
        }
        self.gpus.iter().try_for_each(|gpu| write!(f, "{gpu}"))
    }
}

/// Formats one device as several lines.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(&self.device.name);
        match (self.index, self.device.number) {
            (Some(index), Some(number)) if index != u32::from(number) => {
                writeln!(f, "\nGPU {index}, CUDA device {number}: {name}")?;
            }
            (Some(index), Some(_)) => writeln!(f, "\nGPU {index}: {name}")?,
            (Some(index), None) => writeln!(f, "\nGPU {index}: {name} (not visible to CUDA programs)")?,
            (None, Some(number)) => writeln!(f, "\nCUDA device {number}: {name}")?,
            (None, None) => writeln!(f, "\n{name}")?,
        }
        let bytes = human_bytes;
        writeln!(
            f,
            "  memory     {} used, {} free, {} in all",
            bytes(self.used_bytes),
            bytes(self.free_bytes),
            bytes(self.total_bytes)
        )?;
        match &self.pool {
            // The pool belongs to this process and is unused, so only its release threshold is of interest.
            Some(pool) if pool.reserved_peak_bytes == 0 => {
                writeln!(f, "  pools      yes, releasing above {}", bytes(pool.release_threshold_bytes))?;
            }
            Some(pool) => writeln!(
                f,
                "  pool       {} reserved (peak {}), {} used (peak {}), releasing above {}",
                bytes(pool.reserved_bytes),
                bytes(pool.reserved_peak_bytes),
                bytes(pool.used_bytes),
                bytes(pool.used_peak_bytes),
                bytes(pool.release_threshold_bytes)
            )?,
            None if self.device.number.is_some() => writeln!(f, "  pools      no")?,
            None => {}
        }
        match self.processes.as_deref() {
            None => Ok(()),
            Some([]) => writeln!(f, "  processes  none"),
            Some(processes) => processes.iter().enumerate().try_for_each(|(place, process)| {
                let title = if place == 0 { "processes" } else { "" };
                let used = process.used_bytes.map_or("unknown".to_owned(), bytes);
                writeln!(f, "  {title:<9}  {:>10}  {used:>10}", process.pid)
            }),
        }
    }
}
