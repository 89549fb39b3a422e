//! CUDA graphs: while a graph is captured, requests for its streams are served from a private pool, which
//! stays unchanged as long as the graph may be replayed. As in PyTorch, such a request queries no events and
//! releases no cached memory; requests for other streams work as usual.
//!
//! **How is a capture detected?** PyTorch 2.15 checks the thread's current stream. There is no current stream here: a
//! request checks the stream that it is for, which is the current stream in PyTorch programs, and `record_stream` checks
//! the stream that uses the block; a free and `empty_cache` wait for the end of any capture. PyTorch completes deferred
//! frees at the next request outside the capture, even during the capture if its streams are not joined yet; here they
//! are completed after the capture.

use crate::api::caching::CachingAllocator;
use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::caller::Caller;
use crate::state::private_pools::RouteFilter;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::MempoolId;
use std::sync::atomic::Ordering;

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Returns a new id for a pool that several graphs share: `torch.cuda.graph_pool_handle`.
    pub fn graph_pool_handle(&self) -> MempoolId {
        (0, self.shared.pools_created.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns a new id for the pool of one graph.
    pub fn capture_pool_id(&self) -> MempoolId {
        (self.shared.captures_created.fetch_add(1, Ordering::Relaxed) + 1, 0)
    }

    /// Begins a capture: requests for streams for which `is_captured` returns true are served from the pool,
    /// which is created if it does not exist. The newest matching route applies. `is_captured` is called with
    /// the device locked. Memory that is freed during the capture and that other streams use becomes free
    /// after the capture, at the next allocation.
    ///
    /// # Errors
    /// Fails when there is no such device, or on that device a route to this pool exists or the pool was released.
    pub fn begin_allocate_to_pool(
        &self,
        device: DeviceId,
        pool: MempoolId,
        is_captured: impl Fn(StreamId) -> bool + Send + 'static,
    ) -> Result<(), AllocatorError> {
        self.device(device)?.begin_allocate_to_pool(pool, RouteFilter::Capture(Box::new(is_captured)))
    }

    /// Ends the capture. The pool stays until [`Self::release_pool`].
    ///
    /// # Errors
    /// Fails when there is no such device, or no route to this pool.
    pub fn end_allocate_to_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        self.device(device)?.end_allocate_to_pool(pool)
    }

    /// Ends a graph's use of its pool, once for each [`Self::begin_allocate_to_pool`]. Once the pool has no
    /// user, its free memory is released at the next [`empty_cache`](crate::Backend::empty_cache) or when
    /// memory runs out.
    ///
    /// # Errors
    /// Fails when there is no such device, or the pool has no user on the device.
    pub fn release_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        self.device(device)?.release_pool(pool)
    }

    /// Releases a pool's free memory to the device, if the pool has no more users.
    ///
    /// # Errors
    /// Fails when there is no such device, or the device fails.
    pub fn empty_pool(&self, device: DeviceId, pool: MempoolId) -> Result<(), AllocatorError> {
        let mut device = self.device(device)?;
        let context = Caller::of_free(&device.history);
        device.release_cached(Some(pool), context)
    }

    /// Returns the start and size of the segment that contains an address: a process can share memory with
    /// another process only by whole segments.
    ///
    /// # Errors
    /// [`AllocatorError::InvalidPointer`] when no allocated block begins at `address`;
    /// [`AllocatorError::Unsupported`] for expandable segments, whose pages may be unmapped.
    pub fn base_allocation(&self, address: u64) -> Result<(u64, u64), AllocatorError> {
        let found = self.devices().find_map(|device| device.base_allocation(address));
        found.unwrap_or(Err(AllocatorError::InvalidPointer(address)))
    }
}
