//! Queries to the CUDA driver and NVML about devices, pools and processes. The first query loads both libraries; on a
//! machine without them, queries return an error that names the missing one.
//!
//! **Why a separate feature?** Programs that use only the hook then need not build cudarc and NVML, which takes 16 s on
//! one core in debug builds and 36 s in release builds. The command enables it by default.

mod calls;
mod error;
mod gpus;
mod memory;
mod nvml;

#[doc(hidden)]
pub use calls::start_driver;

pub use self::{
    error::GpuError,
    gpus::{Gpu, Gpus, gpus},
    memory::{MemoryInfo, PoolStatistics, mem_get_info, pool_statistics, reset_pool_peaks},
    nvml::{DeviceProcess, gpu_processes, list_gpu_processes},
};
