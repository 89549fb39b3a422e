//! The public interface: the allocator with the functions of `torch.cuda.memory`, its pools and its messages.

pub(crate) mod caching;
#[cfg(feature = "cuda-stats")]
pub(crate) mod device_buffer;
pub(crate) mod graph_capture;
pub(crate) mod mem_pool;
pub(crate) mod snapshots;
pub(crate) mod stats_report;
