//! The page of `memtrack gpus`, as text and as JSON.

use super::gpus::{Gpu, Gpus};
use super::pools::{PoolStatistics, Watermark};
use super::processes::GpuProcess;
use memtrack_model::units::{human_bytes, printable};
use serde_json::{Value, json};
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

/// Lines of one device.
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
            // The pool is this process's own: what can be seen from outside is how it is set.
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

impl Gpus {
    /// The same for scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "driver_version": self.driver_version,
            "cuda_version": self.cuda_version.map(|(major, minor)| format!("{major}.{minor}")),
            "gpus": self.gpus.iter().map(Gpu::to_json).collect::<Vec<_>>(),
            "missing": self.missing.as_ref().map(ToString::to_string),
        })
    }
}

impl Gpu {
    fn to_json(&self) -> Value {
        let process = |process: &GpuProcess| json!({ "pid": process.pid, "used_bytes": process.used_bytes });
        json!({
            "index": self.index,
            "cuda_device": self.cuda_device,
            "name": self.name,
            "uuid": self.uuid,
            "memory": {
                "used_bytes": self.memory.used_bytes(),
                "free_bytes": self.memory.free_bytes,
                "total_bytes": self.memory.total_bytes,
            },
            "pool": self.pool.map(PoolStatistics::to_json),
            "processes": self.processes.as_ref().map(|all| all.iter().map(process).collect::<Vec<_>>()),
        })
    }
}

impl PoolStatistics {
    fn to_json(self) -> Value {
        let watermark = |mark: &Watermark| json!({ "current": mark.current_bytes, "peak": mark.peak_bytes });
        json!({
            "reserved_bytes": watermark(&self.reserved),
            "used_bytes": watermark(&self.used),
            "release_threshold_bytes": self.release_threshold_bytes,
        })
    }
}
