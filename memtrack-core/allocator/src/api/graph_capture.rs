//! Support for CUDA graphs. While a graph is being captured, requests for its streams are served from a private pool,
//! which stays unchanged for as long as the graph may be replayed. As in PyTorch, such a request queries no events and
//! releases no cached memory; requests for other streams work as usual.
//!
//! **How is a capture detected?** PyTorch 2.15 checks the thread's current stream. There is no current stream here.
//! Instead, a request checks the stream it is for, which in PyTorch programs is the current stream, and `record_stream`
//! checks the stream that uses the block. `free` and `empty_cache` check whether any capture is in progress. PyTorch
//! completes deferred frees at the next request for a stream that is not captured, which may be while the capture is
//! still in progress, if its streams have not been joined yet; here, deferred frees are always completed after the
//! capture.

use crate::api::caching::CachingAllocator;
use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::state::private_pools::RouteFilter;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::MempoolId;
use std::sync::atomic::Ordering;

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Returns a new id for a pool that several graphs share. This is `torch.cuda.graph_pool_handle`.
    pub fn graph_pool_handle(&self) -> MempoolId {
        (0, self.shared.pools_created.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns a new id for the pool of a single graph.
    pub fn capture_pool_id(&self) -> MempoolId {
        (self.shared.captures_created.fetch_add(1, Ordering::Relaxed) + 1, 0)
    }

    /// Starts a capture. Requests for streams for which `is_captured` returns true are served from the pool, which is
    /// created if it does not exist. If several routes match, the newest applies. `is_captured` is called while the
    /// device is locked. Memory that is freed during the capture while other streams still use it becomes free at the
    /// first allocation after the capture.
    ///
    /// # Errors
    /// Fails when there is no such device, or when the device already has a route to this pool or the pool was
    /// released.
    pub fn begin_allocate_to_pool(
        &self,
        device: DeviceId,
        pool: MempoolId,
        is_captured: impl Fn(StreamId) -> bool + Send + 'static,
    ) -> Result<(), AllocatorError> {
        self.lock_device(device)?.begin_allocate_to_pool(pool, RouteFilter::Capture(Box::new(is_captured)))
    }

    /// Ends the capture. The pool is kept until [`Self::release_pool`] is called.
    ///
    /// # Errors
    /// Fails when there is no such device or no route to this pool.
    pub fn end_allocate_to_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        self.lock_device(device)?.end_allocate_to_pool(pool)
    }

    /// Ends a graph's use of `pool`; call this once for each [`Self::begin_allocate_to_pool`]. When the pool has no
    /// users left, its free memory is released by the next [`empty_cache`](crate::Backend::empty_cache) or when memory
    /// runs out.
    ///
    /// # Errors
    /// Fails when there is no such device or the pool has no users on it.
    pub fn release_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        self.lock_device(device)?.release_pool(pool)
    }

    /// Releases a pool's free memory to the device if the pool has no users left.
    ///
    /// # Errors
    /// Fails when there is no such device or the device fails.
    pub fn empty_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        let mut device = self.lock_device(device)?;
        let context = device.history.capture_free();
        device.release_cached(Some(pool), context)
    }

    /// Returns the start and size of the segment that contains a block. Processes can share memory only in whole
    /// segments.
    ///
    /// # Errors
    /// [`AllocatorError::InvalidPointer`] when no allocated block starts at `address`; [`AllocatorError::Unsupported`]
    /// for expandable segments, whose pages may be unmapped.
    pub fn base_allocation(&self, address: u64) -> Result<(u64, u64), AllocatorError> {
        let found = self.lock_devices().find_map(|device| device.base_allocation(address));
        found.unwrap_or(Err(AllocatorError::InvalidPointer(address)))
    }
}
