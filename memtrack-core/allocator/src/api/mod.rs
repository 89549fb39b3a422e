//! The public interface: the allocator with the functions of `torch.cuda.memory`, its pools and its messages.

pub(crate) mod caching;
pub(crate) mod error;
pub(crate) mod free_memory_callbacks;
pub(crate) mod graph_capture;
pub(crate) mod mem_pool;
pub(crate) mod oom_rejection;
pub(crate) mod pytorch;
pub(crate) mod snapshots;
pub(crate) mod stats_report;
pub(crate) mod summary;
