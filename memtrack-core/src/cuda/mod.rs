//! NVIDIA devices. With the feature `cuda-stats`: what the driver and NVML say about devices, pools and processes.

#[cfg(feature = "cuda-stats")]
mod driver;
#[cfg(feature = "cuda-stats")]
mod error;
#[cfg(feature = "cuda-stats")]
mod gpus;
#[cfg(feature = "cuda-stats")]
mod memory_info;
#[cfg(feature = "cuda-stats")]
mod nvml;
#[cfg(feature = "cuda-stats")]
mod page;
#[cfg(feature = "cuda-stats")]
mod pools;
#[cfg(feature = "cuda-stats")]
mod processes;

#[cfg(feature = "cuda-stats")]
pub use self::{
    error::GpuError,
    gpus::{Gpu, Gpus, gpus},
    memory_info::{MemoryInfo, mem_get_info},
    pools::{PoolStatistics, Watermark, pool_statistics, reset_pool_peaks},
    processes::{GpuProcess, gpu_processes, list_gpu_processes},
};
