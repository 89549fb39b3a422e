//! Creates, routes to and removes private pools.

use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::state::blocks::PoolId;
use crate::state::device::Device;
use crate::state::pools::{Pool, PoolAllocator};
use crate::state::private_pools::{PrivatePool, Route, RouteFilter};
use memtrack_model::snapshot::pytorch::{MempoolId, PoolKind};
use std::sync::Arc;

/// Returns PyTorch's hash of a pool's id, which is the nonzero half of the id.
fn hash(id: MempoolId) -> u64 {
    if id.0 != 0 { id.0 } else { id.1 }
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
