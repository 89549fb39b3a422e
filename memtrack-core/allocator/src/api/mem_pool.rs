//! `torch.cuda.MemPool`: memory that is kept separate from the default pool.

use crate::api::caching::CachingAllocator;
use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::state::pools::PoolAllocator;
use crate::state::private_pools::RouteFilter;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::{MempoolId, SegmentInfo};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

/// Options for a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemPoolOptions {
    /// Whether requests for the default pool may be served from this pool before the whole cache is released.
    pub use_on_oom: bool,
    /// Whether blocks are never split, so that each allocation occupies a whole segment.
    pub no_split: bool,
}

impl MemPoolOptions {
    /// Returns the default options.
    #[must_use]
    pub const fn new() -> Self {
        Self { use_on_oom: false, no_split: false }
    }

    /// Sets whether requests for the default pool may be served from this pool before the whole cache is
    /// released.
    #[must_use]
    pub const fn use_on_oom(mut self, use_on_oom: bool) -> Self {
        self.use_on_oom = use_on_oom;
        self
    }

    /// Sets whether blocks are never split.
    #[must_use]
    pub const fn no_split(mut self, no_split: bool) -> Self {
        self.no_split = no_split;
        self
    }
}

/// A private pool. Dropping it releases its free memory at once; live blocks stay valid.
#[derive(Debug)]
pub struct MemPool<M: DeviceMemory> {
    allocator: CachingAllocator<M>,
    device: DeviceId,
    id: MempoolId,
}

/// A guard that routes the creating thread's requests on a device to a pool until the guard is dropped.
#[derive(Debug)]
#[must_use = "the route ends when the guard is dropped: bind it to a name such as `_route`"]
pub struct PoolRoute<M: DeviceMemory> {
    allocator: CachingAllocator<M>,
    device: DeviceId,
    id: MempoolId,
    /// Makes the guard `!Send`, because it must be dropped on the thread that created it.
    _not_send: PhantomData<*const ()>,
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Creates a pool on a device.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub fn mem_pool(&self, device: DeviceId, options: MemPoolOptions) -> Result<MemPool<M>, AllocatorError> {
        let mut locked = self.lock_device(device)?;
        let number = self.shared.pools_created.fetch_add(1, Ordering::Relaxed) + 1;
        let id = (0, number);
        locked.create_or_retain_pool(id)?;
        if options.use_on_oom {
            locked.use_on_oom(id, true);
        }
        if options.no_split {
            locked.set_no_split(id);
        }
        Ok(MemPool { allocator: self.clone(), device, id })
    }

    /// Creates a pool whose segments are allocated by `source`, like `MemPool(allocator=…)`. The caching allocator
    /// still manages the pool's allocated and cached blocks and records its events. Such a pool does not use
    /// expandable segments.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub fn mem_pool_from(
        &self,
        source: Arc<dyn PoolAllocator>,
        device: DeviceId,
        options: MemPoolOptions,
    ) -> Result<MemPool<M>, AllocatorError> {
        let pool = self.mem_pool(device, options)?;
        self.lock_device(device)?.set_source(pool.id, &source);
        Ok(pool)
    }
}

impl<M: DeviceMemory> MemPool<M> {
    /// Returns the pool's id, as in PyTorch's snapshots.
    pub fn id(&self) -> MempoolId {
        self.id
    }

    /// Returns the pool's segments on all devices with their blocks, in the same form as
    /// [`CachingAllocator::memory_snapshot`]. This is `MemPool.snapshot()`.
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        let mut segments = self.allocator.memory_snapshot();
        segments.retain(|segment| segment.pool == self.id);
        segments
    }

    /// Returns the device for which the pool was created.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the number of routes and objects that keep the pool alive.
    pub fn use_count(&self) -> u32 {
        self.allocator.lock_device(self.device).map_or(0, |device| device.pool_users(self.id))
    }

    /// Routes the calling thread's requests on `device` to this pool until the returned guard is dropped. Routes
    /// can be nested; the newest applies.
    ///
    /// # Errors
    /// Fails when there is no such device, or when the device already has a route to this pool or the pool was
    /// released.
    pub fn use_on(&self, device: DeviceId) -> Result<PoolRoute<M>, AllocatorError> {
        self.allocator
            .lock_device(device)?
            .begin_allocate_to_pool(self.id, RouteFilter::Thread(thread::current().id()))?;
        Ok(PoolRoute { allocator: self.allocator.clone(), device, id: self.id, _not_send: PhantomData })
    }

    /// Routes the calling thread's requests to this pool, like [`Self::use_on`], on the device for which the pool
    /// was created. This is `torch.cuda.use_mem_pool`.
    ///
    /// # Errors
    /// Fails when a route to this pool already exists.
    pub fn use_mem_pool(&self) -> Result<PoolRoute<M>, AllocatorError> {
        self.use_on(self.device)
    }
}

impl<M: DeviceMemory> Drop for PoolRoute<M> {
    fn drop(&mut self) {
        if let Ok(mut device) = self.allocator.lock_device(self.device) {
            // `use_on` added both the route and the user, so removing them cannot fail.
            let _ = device.end_allocate_to_pool(self.id);
            let _ = device.release_pool(self.id);
        }
    }
}

impl<M: DeviceMemory> Drop for MemPool<M> {
    fn drop(&mut self) {
        if let Ok(mut device) = self.allocator.lock_device(self.device) {
            device.use_on_oom(self.id, false);
            let _ = device.release_pool(self.id);
        }
        for mut device in self.allocator.lock_devices() {
            let context = device.history.capture_free();
            // If the device fails, the memory stays allocated, because the error cannot be reported.
            let _ = device.release_cached(Some(self.id), context);
        }
    }
}
