//! PyTorch's caching allocator for device memory, as a library: block for block the same decisions, with the same
//! statistics, history and messages.
//!
//! ```
//! use memtrack_core::allocator::{CachingAllocator, Settings};
//! use memtrack_core::event::{DeviceId, StreamId};
//!
//! let settings = Settings::parse("max_split_size_mb:128")?;
//! let allocator = CachingAllocator::simulated(1, 24 << 30, &settings)?;
//! let (device, stream) = (DeviceId(0), StreamId(0));
//! let block = allocator.caching_allocator_alloc(100 << 20, device, stream)?;
//! assert_eq!(allocator.memory_allocated(device)?, 100 << 20);
//! allocator.caching_allocator_delete(block)?;
//! // The memory is cached: the next request that fits gets it without asking the device.
//! assert_eq!(allocator.memory_reserved(device)?, 100 << 20);
//! allocator.empty_cache()?;
//! assert_eq!(allocator.memory_reserved(device)?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **How it works.** Memory is taken from the device in segments and cut into blocks. A request is rounded (`sizes`),
//! given the best fitting free block of its stream and pool (`free_blocks`), and what is left of the block is split off
//! (`malloc`). A block that comes back merges with its free neighbours (`free`); where other streams use it, when they are
//! done (`events`). When the device has no more, cached segments are given back in a fixed order (`release`) before the
//! request fails (`oom`). With expandable segments, memory is mapped page by page into reserved address space
//! (`expandable`). Private pools keep memory apart (`private_pools`).
//!
//! The device itself is a [`DeviceMemory`]: [`SimulatedMemory`] is one without a GPU; `CudaMemory` (feature
//! `cuda-stats`) is a CUDA device. Other allocators stand behind the same functions as a [`Backend`].
//!
//! **What of `torch.cuda.memory` is not here**: the statistics of pinned host memory (`host_memory_stats`), which this does
//! not allocate; `caching_allocator_enable`, for which a program calls [`DeviceMemory::allocate`] itself; the deprecated
//! names (`memory_cached` and `reset_max_*`). `change_current_allocator` is the choice of a [`Backend`] at the start.

mod backend;
mod block;
mod caching;
mod caller;
#[cfg(feature = "cuda-stats")]
mod cuda_context;
#[cfg(feature = "cuda-stats")]
mod cuda_memory;
mod deferred_frees;
mod device;
#[cfg(feature = "cuda-stats")]
mod device_buffer;
mod device_memory;
mod error;
mod events;
mod expandable;
mod free;
mod free_blocks;
mod free_memory_callbacks;
mod graph_capture;
mod hash_order;
mod history;
#[cfg(feature = "cuda-stats")]
mod kept_streams;
mod live_blocks;
mod malloc;
mod mem_pool;
mod memory_api;
mod oom;
mod oom_rejection;
mod pools;
mod private_pools;
mod pytorch;
mod release;
pub mod replay;
mod segments;
mod settings;
mod simulated;
mod sizes;
mod stats;
mod stats_report;
mod stream_uses;
mod summary;
pub mod workload;

pub use backend::{Backend, OomObserver};
#[cfg(feature = "cuda-stats")]
pub use backend::{CudaMallocAsync, Pluggable, PluggableError, cuda_backend};
pub use caching::CachingAllocator;
#[cfg(feature = "cuda-stats")]
pub use cuda_memory::{CudaEvent, CudaMemory};
#[cfg(feature = "cuda-stats")]
pub use device_buffer::{BufferError, DeviceBuffer};
pub use device_memory::{DeviceError, DeviceMemory, DeviceProcess, MemoryInfo};
pub use error::AllocatorError;
pub use history::{HistoryOptions, TraceEntry};
pub use malloc::Allocation;
pub use mem_pool::{MemPool, MemPoolOptions, PoolRoute};
pub use memtrack_model::options::Context;
pub use oom::OutOfMemoryError;
pub use oom_rejection::OomRejection;
pub use pools::PoolAllocator;
pub use private_pools::MempoolId;
pub use segments::{BlockInfo, BlockState, SegmentInfo};
pub use settings::{
    AllocatorBackend, AllocatorOptions, AllocatorSettings, Reserve, Roundup, Settings, SettingsError,
};
pub use simulated::SimulatedMemory;
pub use sizes::{block_size, format_size, segment_size};
pub use stats::{DeviceStats, PoolKind, Stat, StatArray};
