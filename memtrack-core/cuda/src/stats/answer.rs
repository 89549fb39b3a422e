//! The output of `memtrack gpus`, as text and as JSON.

use super::gpus::{Gpu, Gpus};
use super::pools::PoolStatistics;
use super::processes::DeviceProcess;
use memtrack_model::answer::{DeviceAnswer, DeviceKind};
use memtrack_model::units::{human_bytes, printable};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver_version.as_ref().map(|version| format!("driver {}", printable(version)));
        let cuda = self.cuda_version.map(|(major, minor)| format!("CUDA {major}.{minor}"));
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
        let name = printable(&self.name);
        match (self.index, self.cuda_device) {
            (Some(index), Some(number)) if index != number => {
                writeln!(f, "\nGPU {index}, CUDA device {number}: {name}")?;
            }
            (Some(index), Some(_)) => writeln!(f, "\nGPU {index}: {name}")?,
            (Some(index), None) => writeln!(f, "\nGPU {index}: {name} (not visible to CUDA programs)")?,
            (None, Some(number)) => writeln!(f, "\nCUDA device {number}: {name}")?,
            (None, None) => writeln!(f, "\n{name}")?,
        }
        let bytes = human_bytes;
        let (used, total) = (self.memory.used_bytes(), self.memory.total_bytes);
        writeln!(
            f,
            "  memory     {} used, {} free, {} in all",
            bytes(used),
            bytes(self.memory.free_bytes),
            bytes(total)
        )?;
        match &self.pool {
            // The pool belongs to this process and is unused, so only its release threshold is of interest.
            Some(pool) if pool.reserved.peak_bytes == 0 => {
                writeln!(f, "  pools      yes, releasing above {}", bytes(pool.release_threshold_bytes))?;
            }
            Some(pool) => writeln!(
                f,
                "  pool       {} reserved (peak {}), {} used (peak {}), releasing above {}",
                bytes(pool.reserved.current_bytes),
                bytes(pool.reserved.peak_bytes),
                bytes(pool.used.current_bytes),
                bytes(pool.used.peak_bytes),
                bytes(pool.release_threshold_bytes)
            )?,
            None if self.cuda_device.is_some() => writeln!(f, "  pools      no")?,
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

/// The machine's devices, as `memtrack gpus --json` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GpusAnswer {
    /// The version of the NVIDIA driver; null without NVML.
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver supports; null if the driver does not start.
    pub cuda_version: Option<String>,
    /// The devices.
    pub gpus: Vec<GpuAnswer>,
    /// The reason some values are null: the error of the driver or of NVML; null if both answered.
    pub missing: Option<String>,
}

/// One device in the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GpuAnswer {
    /// The device: its name, and the number that CUDA programs started in the same way use for it (null if
    /// they may not use it).
    pub device: DeviceAnswer,
    /// The device's number in NVML, as shown by `nvidia-smi`; null without NVML.
    pub index: Option<u32>,
    /// The device's UUID.
    pub uuid: String,
    /// The number of bytes of the device's memory that all processes together use.
    pub used_bytes: u64,
    /// The number of free bytes of the device's memory.
    pub free_bytes: u64,
    /// The total number of bytes of the device's memory.
    pub total_bytes: u64,
    /// The device's memory pool in this process; null if the device has none or CUDA programs may not use the device.
    pub pool: Option<GpuPoolAnswer>,
    /// The processes that compute on the device; null if NVML does not report them.
    pub processes: Option<Vec<GpuProcessAnswer>>,
}

/// A device's memory pool in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GpuPoolAnswer {
    /// The number of bytes that the pool has reserved.
    pub reserved_bytes: u64,
    /// The peak number of bytes that the pool has reserved.
    pub reserved_peak_bytes: u64,
    /// The number of bytes of the pool that are in use.
    pub used_bytes: u64,
    /// The peak number of bytes of the pool that were in use.
    pub used_peak_bytes: u64,
    /// The number of reserved bytes above which the pool returns memory to the driver.
    pub release_threshold_bytes: u64,
}

/// A process that computes on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GpuProcessAnswer {
    /// The process id.
    pub pid: u32,
    /// The number of bytes of the device's memory that the process uses; null if NVML does not report it.
    pub used_bytes: Option<u64>,
}

impl Gpus {
    /// Returns the answer that `memtrack gpus --json` prints.
    #[must_use]
    pub fn answer(&self) -> GpusAnswer {
        GpusAnswer {
            driver_version: self.driver_version.clone(),
            cuda_version: self.cuda_version.map(|(major, minor)| format!("{major}.{minor}")),
            gpus: self.gpus.iter().map(Gpu::answer).collect(),
            missing: self.missing.as_ref().map(ToString::to_string),
        }
    }

    /// Returns the answer that `memtrack gpus --json` prints, as a JSON value.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.answer()).unwrap_or_default()
    }
}

impl Gpu {
    fn answer(&self) -> GpuAnswer {
        let process =
            |process: &DeviceProcess| GpuProcessAnswer { pid: process.pid, used_bytes: process.used_bytes };
        let number = self.cuda_device.and_then(|number| u16::try_from(number).ok());
        GpuAnswer {
            device: DeviceAnswer { number, kind: DeviceKind::Device, name: self.name.clone() },
            index: self.index,
            uuid: self.uuid.clone(),
            used_bytes: self.memory.used_bytes(),
            free_bytes: self.memory.free_bytes,
            total_bytes: self.memory.total_bytes,
            pool: self.pool.map(PoolStatistics::answer),
            processes: self.processes.as_ref().map(|all| all.iter().map(process).collect()),
        }
    }
}

impl PoolStatistics {
    fn answer(self) -> GpuPoolAnswer {
        GpuPoolAnswer {
            reserved_bytes: self.reserved.current_bytes,
            reserved_peak_bytes: self.reserved.peak_bytes,
            used_bytes: self.used.current_bytes,
            used_peak_bytes: self.used.peak_bytes,
            release_threshold_bytes: self.release_threshold_bytes,
        }
    }
}
