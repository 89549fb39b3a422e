//! Private pools, which keep memory separate from ordinary requests, for `MemPool` and for CUDA graphs. Routes
//! determine the pool for each request.

use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::device::Device;
use crate::state::hash_order_map::HashOrderMap;
use crate::state::pools::{Pool, PoolAllocator, PoolId};
use memtrack_model::event::StreamId;
use memtrack_model::snapshot::pytorch::{MempoolId, PoolKind};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// Returns PyTorch's hash of a pool's id, which is the nonzero half of the id.
fn hash(id: MempoolId) -> u64 {
    if id.0 != 0 { id.0 } else { id.1 }
}

/// A private pool.
#[derive(Debug)]
struct PrivatePool {
    /// The number of the pair of pools that holds its small and large blocks.
    pair: u32,
    /// The number of users that may still request memory from the pool.
    users: u32,
}

/// The requests that a route applies to.
pub(crate) enum RouteFilter {
    /// The requests made by a thread: `use_mem_pool`.
    Thread(ThreadId),
    /// The requests for streams that belong to a capture. A request for such a stream must not query events or
    /// release memory.
    Capture(Box<dyn Fn(StreamId) -> bool + Send>),
}

/// A route that sends requests to a pool.
#[derive(Debug)]
struct Route {
    to: MempoolId,
    applies_to: RouteFilter,
}

impl fmt::Debug for RouteFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => thread.fmt(f),
            Self::Capture(_) => f.write_str("Capture"),
        }
    }
}

impl RouteFilter {
    fn matches(&self, stream: StreamId) -> bool {
        match self {
            Self::Thread(thread) => *thread == thread::current().id(),
            Self::Capture(is_captured) => is_captured(stream),
        }
    }
}

/// A device's private pools.
#[derive(Debug, Default)]
pub(crate) struct PrivatePools {
    pools: HashMap<MempoolId, PrivatePool>,
    /// Pools that receive no further requests, in the order in which they are emptied.
    freeable: HashOrderMap<MempoolId, MempoolId>,
    /// Pools that may serve requests for the default pool when memory runs out, in the order in which they are
    /// tried.
    on_oom: HashOrderMap<MempoolId, ()>,
    /// The routes, oldest first.
    routes: Vec<Route>,
    unused_pairs: Vec<u32>,
}

impl PrivatePools {
    /// Returns the pair of pools for the calling thread's requests on a stream, or 0 for the default pools.
    #[inline]
    pub(crate) fn routed_pair(&self, stream: StreamId) -> u32 {
        if self.routes.is_empty() {
            return 0;
        }
        let route = self.routes.iter().rev().find(|route| route.applies_to.matches(stream));
        route.and_then(|route| self.pools.get(&route.to)).map_or(0, |pool| pool.pair)
    }

    /// Returns whether a graph is being captured.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.routes.iter().any(|route| matches!(route.applies_to, RouteFilter::Capture(_)))
    }

    /// Returns whether a stream is being captured. Requests for other streams work as usual during a capture, as in
    /// PyTorch 2.15, although PyTorch checks the thread's current stream instead.
    #[inline]
    pub(crate) fn captures(&self, stream: StreamId) -> bool {
        let is_captured = |route: &Route| matches!(&route.applies_to, RouteFilter::Capture(is_captured) if is_captured(stream));
        self.routes.iter().any(is_captured)
    }

    /// Returns the pairs of pools that may serve requests for the default pool when memory runs out.
    pub(crate) fn pairs_for_oom(&self) -> Vec<u32> {
        self.on_oom.keys().filter_map(|id| self.pools.get(&id)).map(|pool| pool.pair).collect()
    }

    /// Returns the pools without users, in the order in which they are emptied.
    pub(crate) fn unused_pools(&self) -> Vec<MempoolId> {
        self.freeable.keys().collect()
    }

    pub(crate) fn pair(&self, id: MempoolId) -> Option<u32> {
        self.pools.get(&id).map(|pool| pool.pair)
    }

    /// Returns the pairs of all private pools.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = u32> + '_ {
        self.pools.values().map(|pool| pool.pair)
    }
}

impl<M: DeviceMemory> Device<M> {
    /// Adds a user of a pool, creating the pool if it does not exist.
    pub(crate) fn create_or_retain_pool(&mut self, id: MempoolId) -> Result<(), AllocatorError> {
        if let Some(pool) = self.private.pools.get_mut(&id) {
            if pool.users == 0 {
                return Err(AllocatorError::PoolReleased(id));
            }
            pool.users += 1;
            return Ok(());
        }
        let pair = self.private.unused_pairs.pop().unwrap_or((self.pools.len() / 2) as u32);
        let first = 2 * pair as usize;
        for index in [first, first + 1] {
            if index < self.pools.len() {
                self.pools[index] = Pool::new(id);
            } else {
                self.pools.push(Pool::new(id));
            }
        }
        self.private.pools.insert(id, PrivatePool { pair, users: 1 });
        Ok(())
    }

    /// Sets whether this pool may serve requests for the default pool when memory runs out.
    pub(crate) fn use_on_oom(&mut self, id: MempoolId, allowed: bool) {
        if allowed {
            if self.private.on_oom.get_mut(hash(id), id).is_none() {
                self.private.on_oom.insert(hash(id), id, ());
            }
        } else {
            self.private.on_oom.remove(hash(id), id);
        }
    }

    /// Disables splitting for this pool's blocks.
    pub(crate) fn set_no_split(&mut self, id: MempoolId) {
        let Some(pair) = self.private.pair(id) else { return };
        for kind in [PoolKind::Small, PoolKind::Large] {
            self.pool_mut(PoolId::of(pair, kind)).no_split = true;
        }
    }

    /// Sets the allocator for this pool's segments.
    pub(crate) fn set_source(&mut self, id: MempoolId, source: &Arc<dyn PoolAllocator>) {
        let Some(pair) = self.private.pair(id) else { return };
        for kind in [PoolKind::Small, PoolKind::Large] {
            self.pool_mut(PoolId::of(pair, kind)).source = Some(Arc::clone(source));
        }
    }

    /// Starts routing requests to a pool.
    pub(crate) fn begin_allocate_to_pool(
        &mut self,
        id: MempoolId,
        applies_to: RouteFilter,
    ) -> Result<(), AllocatorError> {
        if self.private.routes.iter().any(|route| route.to == id) {
            return Err(AllocatorError::AlreadyRouted(id));
        }
        self.create_or_retain_pool(id)?;
        self.private.routes.push(Route { to: id, applies_to });
        Ok(())
    }

    /// Ends the route to a pool.
    pub(crate) fn end_allocate_to_pool(&mut self, id: MempoolId) -> Result<(), AllocatorError> {
        let index = self.private.routes.iter().rposition(|route| route.to == id);
        let index = index.ok_or(AllocatorError::NotRouted(id))?;
        self.private.routes.remove(index);
        Ok(())
    }

    /// Removes a user of a pool. When the pool has no users left, its memory may be released.
    pub(crate) fn release_pool(&mut self, id: MempoolId) -> Result<(), AllocatorError> {
        let pool = self.private.pools.get_mut(&id).filter(|pool| pool.users > 0);
        let pool = pool.ok_or(AllocatorError::PoolReleased(id))?;
        pool.users -= 1;
        if pool.users == 0 {
            self.private.freeable.insert(hash(id), id, id);
        }
        Ok(())
    }

    /// Returns a pool's number of users.
    pub(crate) fn pool_users(&self, id: MempoolId) -> u32 {
        self.private.pools.get(&id).map_or(0, |pool| pool.users)
    }

    /// Removes a pool if it has no users and no memory.
    pub(crate) fn remove_empty_pool(&mut self, id: MempoolId) -> Result<(), AllocatorError> {
        let Some(pair) = self.private.pools.get(&id).filter(|pool| pool.users == 0).map(|pool| pool.pair)
        else {
            return Ok(());
        };
        let reserved = self.stats.reserved_bytes_by_private_pools.get(&id).map_or(0, |stat| stat.all.current);
        if reserved != 0 {
            return Ok(());
        }
        // Only address ranges without memory are left.
        for kind in [PoolKind::Small, PoolKind::Large] {
            let ranges: Vec<_> = self.pool(PoolId::of(pair, kind)).unmapped.values().copied().collect();
            for range in ranges {
                self.release_range(range)?;
            }
        }
        self.private.pools.remove(&id);
        self.private.freeable.remove(hash(id), id);
        self.private.unused_pairs.push(pair);
        Ok(())
    }
}
