//! PyTorch's caching allocator for device memory, as a library. It makes the same decision for every block, with the
//! same statistics, history and messages.
//!
//! ```
//! use memtrack_core::allocator::{Backend, CachingAllocator, Settings};
//! use memtrack_core::event::{DeviceId, StreamId};
//!
//! let settings = Settings::parse("max_split_size_mb:128")?;
//! let allocator = CachingAllocator::simulated(1, 24 << 30, &settings)?;
//! let (device, stream) = (DeviceId(0), StreamId(0));
//! let block = allocator.caching_allocator_alloc(100 << 20, device, stream)?;
//! assert_eq!(allocator.memory_allocated(device)?, 100 << 20);
//! allocator.caching_allocator_delete(block)?;
//! // The memory is cached: the next request that fits reuses it without a call to the driver.
//! assert_eq!(allocator.memory_reserved(device)?, 100 << 20);
//! allocator.empty_cache()?;
//! assert_eq!(allocator.memory_reserved(device)?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **How it works.** Memory is allocated from the device in segments, which are split into blocks. The size of a
//! request is rounded up (`sizes`), the best-fitting free block of the request's stream and pool is chosen
//! (`free_blocks`), and the rest of that block is split off (`malloc`). A freed block merges with its free neighbours
//! (`free`); if other streams use the block, this happens once they are done with it (`events`). When the device has no
//! more memory, cached segments are released in a fixed order (`release`) before the request fails (`oom`). With
//! expandable segments, memory is mapped page by page into reserved address space (`expandable`). Private pools keep
//! their memory separate (`private_pools`).
//!
//! The device itself is a [`DeviceMemory`]: [`SimulatedMemory`] needs no GPU, and `CudaMemory` (feature `cuda-stats`)
//! is a CUDA device. PyTorch's other allocators provide the same functions through [`Backend`].
//!
//! **What is missing from `torch.cuda.memory`?** Statistics on pinned host memory (`host_memory_stats`), because no
//! such memory is allocated here; `caching_allocator_enable` (call [`DeviceMemory::allocate`] instead); the deprecated
//! names (`memory_cached` and `reset_max_*`); and `change_current_allocator` (choose a [`Backend`] at startup instead).
//!
//! **Where does it differ from PyTorch?** PyTorch's actual behaviour is the reference (`tests/pytorch`), except for two
//! bugs. If `max_split_size_mb` is lowered at run time, PyTorch releases segments that still have live blocks, which
//! fails in the driver or corrupts the heap; here such segments are kept. If the address range of a released private
//! pool is unmapped in more pieces than it was mapped in, an assertion fails in PyTorch; here the request continues.
//!
//! The modules:
//!
//! - `api`: the interface for programs; `backend`: the functions of `torch.cuda.memory` as a trait, and its
//!   implementations.
//! - `state`: the state of a device; `steps`: the steps of a request; `memory`: the devices that provide the memory;
//!   `settings`: the option strings; `recorder`: what it takes from memtrack's recorder and reports to it; `error`: why
//!   requests fail.
//! - `replay`: replays recorded requests under other settings; `workload`: the operations for `memtrack simulate`.

mod api;
mod backend;
mod error;
mod memory;
mod recorder;
pub mod replay;
mod settings;
mod state;
mod steps;
pub mod workload;

pub use api::caching::CachingAllocator;
#[cfg(feature = "cuda-stats")]
pub use api::device_buffer::{BufferError, DeviceBuffer};
pub use api::mem_pool::{MemPool, MemPoolOptions, PoolRoute};
pub use backend::{Backend, OomObserver};
#[cfg(feature = "cuda-stats")]
pub use backend::{CudaMallocAsync, Pluggable, PluggableError, cuda_backend};
pub use error::{AllocatorError, OomRejection, OutOfMemoryError};
#[cfg(feature = "cuda-stats")]
pub use memory::cuda_memory::{CudaEvent, CudaMemory};
pub use memory::simulated::SimulatedMemory;
pub use memory::{DeviceError, DeviceMemory};
pub use memtrack_model::options::Context;
pub use memtrack_model::snapshot::pytorch::{BlockInfo, BlockState, MempoolId, PoolKind, SegmentInfo};
pub use memtrack_model::{DeviceProcess, MemoryInfo};
pub use settings::sizes::{block_size, format_size, segment_size};
pub use settings::{
    AllocatorBackend, AllocatorOptions, AllocatorSettings, Reserve, Roundup, Settings, SettingsError,
};
pub use state::history::{HistoryOptions, TraceEntry};
pub use state::pools::PoolAllocator;
pub use state::stats::{DeviceStats, Stat, StatArray};
pub use steps::malloc::Allocation;
