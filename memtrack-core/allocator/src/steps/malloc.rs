//! Allocates a block: from the cache first, then from new memory, then after releasing everything that can be
//! released.

use crate::api::error::AllocatorError;
use crate::memory::device_memory::{DeviceError, DeviceMemory};
use crate::settings::sizes::{MIN_BLOCK, SMALL_LIMIT, TOO_LARGE, block_size, segment_size};
use crate::state::block::{Block, BlockId};
use crate::state::caller::Caller;
use crate::state::device::Device;
use crate::state::pools::{PoolId, kind_of};
use memtrack_model::event::{Action, StreamId};
use memtrack_model::snapshot::pytorch::PoolKind;

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocation {
    /// Its address.
    pub address: u64,
    /// Its size in bytes: the request rounded up, or more if the remainder was not worth splitting off.
    pub size: u64,
}

/// The parameters of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The size as requested.
    pub(crate) requested: u64,
    /// The size as a block.
    pub(crate) size: u64,
    /// The size as a segment.
    pub(crate) segment: u64,
    pub(crate) stream: StreamId,
    pub(crate) pool: PoolId,
    /// Whether blocks of growing ranges can serve it.
    pub(crate) expands: bool,
    pub(crate) context: Caller,
}

impl<M: DeviceMemory> Device<M> {
    /// Allocates a block for `requested` bytes, which must not be 0.
    #[inline]
    pub(crate) fn malloc(
        &mut self,
        requested: u64,
        stream: StreamId,
        context: Caller,
    ) -> Result<Allocation, AllocatorError> {
        let mut request = self.request(requested, stream, context)?;
        let block = match self.take_cached(&request) {
            Some(block) => block,
            None => self.take_new(&mut request)?,
        };
        Ok(self.finish_allocation(block, &request))
    }

    /// Returns the parameters of the request, after completed events have freed their blocks.
    #[inline(always)]
    pub(crate) fn request(
        &mut self,
        requested: u64,
        stream: StreamId,
        context: Caller,
    ) -> Result<Request, AllocatorError> {
        if requested >= TOO_LARGE {
            return Err(AllocatorError::TooLarge);
        }
        if self.has_pending() && !self.private.captures(stream) {
            self.process_events(context)?;
        }
        let size = block_size(requested, &self.options);
        let pool = PoolId::of(self.private.routed_pair(stream), kind_of(size));
        let segment = segment_size(size, &self.options);
        let expands = self.expands(pool);
        Ok(Request { requested, size, segment, stream, pool, expands, context })
    }

    /// Takes the best fitting free block out of the cache.
    #[inline(always)]
    pub(crate) fn take_cached(&mut self, request: &Request) -> Option<BlockId> {
        if self.options.garbage_collection_threshold > 0.0 && self.limit.is_some() {
            self.pool_mut(request.pool).searches += 1;
        }
        let best = self.find_cached(request)?;
        self.uncache(best);
        Some(best)
    }

    /// Returns the block that [`Self::take_cached`] would take.
    #[inline(always)]
    pub(crate) fn find_cached(&self, request: &Request) -> Option<BlockId> {
        let mut best = self.pool(request.pool).free.best(request.stream, request.size)?;
        if self.blocks[best].is_expandable() {
            best = self.best_expandable(request)?;
        }
        let Request { size, .. } = *request;
        let found = self.blocks[best].size;
        let most = self.options.max_split_size;
        // An oversize block is not used for a small request, and only within limits for a smaller large one.
        if size < most && found >= most {
            return None;
        }
        if size >= most && found >= size.saturating_add(self.options.max_non_split_rounding) {
            return None;
        }
        Some(best)
    }

    /// Returns the best block if the first candidate is expandable: one that need not grow much, or, while
    /// expandable segments are off, the first that is not expandable.
    #[cold]
    fn best_expandable(&self, request: &Request) -> Option<BlockId> {
        let mut candidates = self.pool(request.pool).free.at_least(request.stream, request.size);
        if !request.expands {
            return candidates.find(|&id| !self.blocks[id].is_expandable());
        }
        let mut best = candidates.next()?;
        for next in candidates {
            if !self.blocks[best].is_expandable() || self.room(next) >= self.room(best) {
                break;
            }
            best = next;
        }
        Some(best)
    }

    /// Returns the size that a block can grow to.
    fn room(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let next = block.next.to_option().map(|next| &self.blocks[next]).filter(|next| !next.mapped);
        block.size + next.map_or(0, |next| next.size)
    }

    /// Gets memory that is not in the cache.
    #[cold]
    fn take_new(&mut self, request: &mut Request) -> Result<BlockId, AllocatorError> {
        if self.options.garbage_collection_threshold > 0.0 && self.limit.is_some() {
            self.collect_garbage(request.context)?;
        }
        if let Some(block) = self.new_segment(request)? {
            return Ok(block);
        }
        if let Some(block) = self.borrow_from_private_pools(request) {
            return Ok(block);
        }
        if self.release_available(request)?
            && let Some(block) = self.new_segment(request)?
        {
            return Ok(block);
        }
        if self.private.captures(request.stream) {
            return Err(self.out_of_memory(request));
        }
        self.release_all(request.context)?;
        self.stats.num_alloc_retries += 1;
        match self.new_segment(request)? {
            Some(block) => Ok(block),
            None => Err(self.out_of_memory(request)),
        }
    }

    /// Takes a segment from the device, or maps pages; returns `None` when there is not enough memory.
    fn new_segment(&mut self, request: &Request) -> Result<Option<BlockId>, AllocatorError> {
        let Request { segment: size, stream, pool, expands, context, .. } = *request;
        if self.limit.is_some_and(|limit| self.reserved.saturating_add(size) > limit) {
            return Ok(None);
        }
        self.reject_preemptively(request)?;
        if expands {
            return self.expand(request);
        }
        let address = match self.take_segment(request) {
            Ok(address) => address,
            Err(DeviceError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.count_reserved(pool, size as i64);
        self.stats.segment.increase(pool.kind(), 1);
        if size >= self.options.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        self.stats.num_device_alloc += 1;
        self.record(Action::SegmentAlloc, address, size, (stream, pool), context);
        let age = self.next_age();
        let mut block = Block::new(address, size, address, age, (stream, pool));
        block.segment_stack = context.stack;
        Ok(Some(self.blocks.insert(block)))
    }

    /// Takes a segment from the device, or from the pool's own source.
    fn take_segment(&self, request: &Request) -> Result<u64, DeviceError> {
        let Request { segment, stream, .. } = *request;
        match &self.pool(request.pool).source {
            None => self.memory.allocate(segment),
            Some(source) => source.allocate(segment, self.id, stream).ok_or(DeviceError::OutOfMemory),
        }
    }

    /// Returns whether new memory of a pool is mapped into growing ranges.
    #[inline]
    fn expands(&self, pool: PoolId) -> bool {
        self.options.expandable_segments && self.pool(pool).source.is_none()
    }

    /// Searches the pools that lend to the default one when memory runs out. As in PyTorch, they lend no part
    /// of a growing range.
    fn borrow_from_private_pools(&mut self, request: &mut Request) -> Option<BlockId> {
        if !request.pool.is_default() {
            return None;
        }
        let kind = request.pool.kind();
        self.private.on_oom_pairs().into_iter().find_map(|pair| {
            let borrowed = Request { pool: PoolId::of(pair, kind), expands: false, ..*request };
            let block = self.take_cached(&borrowed)?;
            *request = borrowed;
            Some(block)
        })
    }

    fn should_split(&self, block: &Block, request: &Request) -> bool {
        let rest = block.size - request.size;
        let pool = self.pool(request.pool);
        if pool.no_split {
            false
        } else if request.pool.kind() == PoolKind::Small || request.expands {
            rest >= MIN_BLOCK
        } else {
            request.size < self.options.max_split_size && rest > SMALL_LIMIT
        }
    }

    /// Allocates a block that is in no pool to the client.
    #[inline]
    fn finish_allocation(&mut self, found: BlockId, request: &Request) -> Allocation {
        let kind = request.pool.kind();
        let was_split = self.blocks[found].is_split();
        let countable = !self.blocks[found].is_expandable();
        let id = if self.should_split(&self.blocks[found], request) {
            let id = self.split(found, request.size);
            let rest = self.blocks[found].size;
            if countable && was_split {
                self.stats.inactive_split_bytes.decrease(kind, request.size);
            } else if countable {
                self.stats.inactive_split_bytes.increase(kind, rest);
                self.stats.inactive_split.increase(kind, 1);
            }
            id
        } else {
            if countable && was_split {
                self.stats.inactive_split_bytes.decrease(kind, self.blocks[found].size);
                self.stats.inactive_split.decrease(kind, 1);
            }
            found
        };
        let block = &mut self.blocks[id];
        block.allocated = true;
        block.requested = request.requested;
        block.stack = request.context.stack;
        let (address, size, place) = (block.address, block.size, Self::place(block));
        self.live.insert(address, id);
        self.record(Action::Alloc, address, request.requested, place, request.context);
        self.stats.allocation.increase(kind, 1);
        self.stats.allocated_bytes.increase(kind, size);
        self.stats.active.increase(kind, 1);
        self.stats.active_bytes.increase(kind, size);
        self.stats.requested_bytes.increase(kind, request.requested);
        if size >= self.options.max_split_size {
            self.stats.oversize_allocations.increase(1);
        }
        Allocation { address, size }
    }

    /// Splits `size` bytes off the front of a block as a separate block; the rest returns to the cache. The
    /// new block has no segment stack, as in PyTorch.
    #[inline]
    fn split(&mut self, rest: BlockId, size: u64) -> BlockId {
        let old = &mut self.blocks[rest];
        let mut front = Block::new(old.address, size, old.base, old.age, (old.stream, old.pool));
        front.range = old.range;
        front.prev = old.prev;
        front.next = rest;
        old.address += size;
        old.size -= size;
        let prev = front.prev;
        let id = self.blocks.insert(front);
        self.blocks[rest].prev = id;
        if let Some(prev) = prev.to_option() {
            self.blocks[prev].next = id;
        }
        self.cache(rest);
        id
    }
}
