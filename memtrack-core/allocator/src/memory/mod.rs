//! The devices that memory comes from: a simulated device and CUDA devices.

#[cfg(feature = "cuda-stats")]
pub(crate) mod cuda_context;
#[cfg(feature = "cuda-stats")]
pub(crate) mod cuda_memory;
#[cfg(feature = "cuda-stats")]
pub(crate) mod device_buffer;
pub(crate) mod device_memory;
#[cfg(feature = "cuda-stats")]
pub(crate) mod kept_streams;
pub(crate) mod simulated;
