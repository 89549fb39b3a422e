//! Releases cached memory to the device: old blocks, oversize blocks, or everything.

use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::recorder::Caller;
use crate::state::blocks::{BlockId, PoolId};
use crate::state::device::Device;
use crate::steps::malloc::Request;
use memtrack_model::event::{Action, StreamId};
use memtrack_model::snapshot::pytorch::{MempoolId, PoolKind};

const LARGE_POOL: PoolId = PoolId(1);

impl<M: DeviceMemory> Device<M> {
    /// Releases the oldest cached blocks in the large pool if reserved memory exceeds the share of the limit that
    /// `garbage_collection_threshold` sets. Each round releases all blocks of at least the mean age, until enough
    /// memory has been released.
    pub(crate) fn collect_garbage(&mut self, context: Caller) -> Result<(), AllocatorError> {
        let threshold = self.options.garbage_collection_threshold * self.limit.unwrap_or(u64::MAX) as f64;
        let target = self.reserved.saturating_sub(threshold as u64);
        if target == 0 {
            return Ok(());
        }
        let pool = self.pool(LARGE_POOL);
        let age = |id: &BlockId| pool.age(&self.blocks[*id]);
        // Expandable blocks count towards the mean age, although they are not released.
        let whole: Vec<(BlockId, u64)> =
            pool.free.iter().filter(|&id| !self.blocks[id].is_split()).map(|id| (id, age(&id))).collect();
        let mut total_age: f64 = whole.iter().map(|&(_, age)| age as f64).sum();
        let mut count = whole.len();
        let mut rest: Vec<(BlockId, u64)> =
            whole.into_iter().filter(|&(id, _)| !self.blocks[id].is_expandable()).collect();
        let mut released = 0;
        while released < target && count > 0 {
            let mean = total_age / count as f64;
            let before = rest.len();
            let mut kept = Vec::new();
            for (id, age) in rest {
                if age as f64 >= mean {
                    released += self.blocks[id].size;
                    total_age -= age as f64;
                    count -= 1;
                    self.release_segment(id, context)?;
                } else {
                    kept.push((id, age));
                }
            }
            rest = kept;
            if rest.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Releases oversize blocks of the request's stream and pool until their sizes add up to the requested size.
    /// Returns whether they did.
    pub(crate) fn release_available(&mut self, request: &Request) -> Result<bool, AllocatorError> {
        let oversize = self.options.max_split_size;
        if oversize == u64::MAX {
            return Ok(false);
        }
        let Request { size, stream, pool, context, .. } = *request;
        let wanted = size.max(oversize);
        let best = self.pool(pool).free.best_fit(stream, wanted);
        if let Some(best) = best.filter(|&id| !self.blocks[id].is_expandable()) {
            if self.blocks[best].is_split() {
                // The segment has live blocks, which is possible only after `max_split_size_mb` was lowered.
                return Ok(false);
            }
            self.release_segment(best, context)?;
            return Ok(true);
        }
        let largest = self.pool(pool).free.blocks_below(stream, wanted);
        let largest: Vec<BlockId> = largest.take_while(|&id| self.blocks[id].size >= oversize).collect();
        let mut released = 0;
        for id in largest {
            let block = &self.blocks[id];
            if released >= wanted {
                break;
            }
            if !block.is_expandable() && !block.is_split() {
                released += block.size;
                self.release_segment(id, context)?;
            }
        }
        Ok(released >= wanted)
    }

    /// Waits for all events and releases all cached blocks that can be released: the blocks of the default pools
    /// (unless a graph is being captured) and the blocks of private pools without users. With `only`, releases just
    /// that private pool, provided that it has no users.
    pub(crate) fn release_cached(
        &mut self,
        only: Option<MempoolId>,
        context: Caller,
    ) -> Result<(), AllocatorError> {
        // Waiting is not allowed while a graph is being captured.
        let capturing = self.private.is_capturing();
        if only.is_none() && !capturing {
            return self.release_all(context);
        }
        self.release_freeable_pools(only, capturing, context)
    }

    /// Waits for all events and releases all cached blocks that can be released.
    pub(crate) fn release_all(&mut self, context: Caller) -> Result<(), AllocatorError> {
        self.wait_for_events(None, context)?;
        self.release_pool_blocks(PoolId::of(0, PoolKind::Large), context)?;
        self.release_pool_blocks(PoolId::of(0, PoolKind::Small), context)?;
        self.release_freeable_pools(None, false, context)
    }

    /// Releases the blocks of all private pools without users, or only the blocks of the pool `only`.
    fn release_freeable_pools(
        &mut self,
        only: Option<MempoolId>,
        capturing: bool,
        context: Caller,
    ) -> Result<(), AllocatorError> {
        for id in self.private.unused_pools() {
            if only.is_some_and(|only| only != id) {
                continue;
            }
            let Some(pair) = self.private.pair(id) else { continue };
            if only.is_some() && !capturing {
                self.wait_for_events(Some(pair), context)?;
            }
            self.release_pool_blocks(PoolId::of(pair, PoolKind::Small), context)?;
            self.release_pool_blocks(PoolId::of(pair, PoolKind::Large), context)?;
            self.remove_empty_pool(id)?;
        }
        Ok(())
    }

    /// Releases the unsplit blocks of a pool, then unmaps the free pages in its ranges.
    fn release_pool_blocks(&mut self, pool: PoolId, context: Caller) -> Result<(), AllocatorError> {
        self.release_blocks_of(pool, None, context)
    }

    /// Releases the unsplit blocks of a pool, then unmaps the free pages in its ranges. With `stream`, releases only
    /// blocks of that stream.
    pub(crate) fn release_blocks_of(
        &mut self,
        pool: PoolId,
        stream: Option<StreamId>,
        context: Caller,
    ) -> Result<(), AllocatorError> {
        let is_of_stream = |id: &BlockId| stream.is_none_or(|stream| self.blocks[*id].stream == stream);
        let free: Vec<BlockId> = self.pool(pool).free.iter().filter(is_of_stream).collect();
        let (expandable, ordinary): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|&id| self.blocks[id].is_expandable());
        for id in ordinary {
            if !self.blocks[id].is_split() {
                self.release_segment(id, context)?;
            }
        }
        for id in expandable {
            self.unmap(id, context)?;
            let block = &self.blocks[id];
            if !block.mapped && !block.is_split() {
                self.release_range(id)?;
            }
        }
        Ok(())
    }

    /// Releases a segment that consists of a single free block.
    fn release_segment(&mut self, id: BlockId, context: Caller) -> Result<(), AllocatorError> {
        let block = &self.blocks[id];
        let (address, size, place) = (block.address, block.size, Self::stream_and_pool(block));
        let context = context.or_stack(block.segment_stack);
        self.stats.num_device_free += 1;
        self.record(Action::SegmentFree, address, size, place, context);
        match &self.pool(place.1).source {
            None => self.memory.release(address)?,
            Some(source) => source.release(address, size, self.id, place.0),
        }
        self.count_reserved(place.1, -(size as i64));
        self.stats.segment.decrease(place.1.kind(), 1);
        if size >= self.options.max_split_size {
            self.stats.oversize_segments.decrease(1);
        }
        self.remove_from_cache(id);
        self.blocks.remove(id);
        Ok(())
    }
}
