//! Allocates a block: from the cache if possible, otherwise from new memory, and as a last resort from new memory after
//! releasing everything that can be released.

use crate::error::AllocatorError;
use crate::memory::{DeviceError, DeviceMemory};
use crate::recorder::Caller;
use crate::settings::sizes::{MIN_BLOCK, REQUEST_LIMIT, SMALL_LIMIT, block_size, pool_kind, segment_size};
use crate::state::blocks::{Block, BlockId, PoolId};
use crate::state::device::Device;
use memtrack_model::event::{Action, StreamId};
use memtrack_model::snapshot::pytorch::PoolKind;

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocation {
    /// The address of the block.
    pub address: u64,
    /// The size of the block in bytes: the requested size rounded up, or more if the rest was too small to be split
    /// off.
    pub size: u64,
}

/// The parameters of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The requested size in bytes.
    pub(crate) requested: u64,
    /// The size in bytes of a block that serves the request: the requested size rounded up.
    pub(crate) size: u64,
    /// The size in bytes of the segment to allocate if the cache has no block for the request.
    pub(crate) segment: u64,
    pub(crate) stream: StreamId,
    pub(crate) pool: PoolId,
    /// Whether the request may be served from expandable segments.
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
        let mut request = self.prepare_request(requested, stream, context)?;
        let block = match self.allocate_cached(&request) {
            Some(block) => block,
            None => self.allocate_new(&mut request)?,
        };
        Ok(self.finish_allocation(block, &request))
    }

    /// Frees blocks whose events are done and returns the parameters of the request.
    #[inline(always)]
    pub(crate) fn prepare_request(
        &mut self,
        requested: u64,
        stream: StreamId,
        context: Caller,
    ) -> Result<Request, AllocatorError> {
        if requested >= REQUEST_LIMIT {
            return Err(AllocatorError::TooLarge);
        }
        if self.has_pending() && !self.private.captures(stream) {
            self.process_events(context)?;
        }
        let size = block_size(requested, &self.options);
        let pool = PoolId::of(self.private.routed_pair(stream), pool_kind(size));
        let segment = segment_size(size, &self.options);
        let expands = self.expands(pool);
        Ok(Request { requested, size, segment, stream, pool, expands, context })
    }

    /// Removes the best-fitting free block from the cache and returns it.
    #[inline(always)]
    pub(crate) fn allocate_cached(&mut self, request: &Request) -> Option<BlockId> {
        if self.options.garbage_collection_threshold > 0.0 && self.limit.is_some() {
            self.pool_mut(request.pool).searches += 1;
        }
        let best = self.find_cached(request)?;
        self.remove_from_cache(best);
        Some(best)
    }

    /// Returns the block that [`Self::allocate_cached`] would return.
    #[inline(always)]
    pub(crate) fn find_cached(&self, request: &Request) -> Option<BlockId> {
        let mut best = self.pool(request.pool).free.best_fit(request.stream, request.size)?;
        if self.blocks[best].is_expandable() {
            best = self.find_best_expandable(request)?;
        }
        let Request { size, .. } = *request;
        let found = self.blocks[best].size;
        let max_split_size = self.options.max_split_size;
        // An oversize block is not used for a smaller request, unless the request is oversize too and only slightly
        // smaller.
        if size < max_split_size && found >= max_split_size {
            return None;
        }
        if size >= max_split_size && found >= size.saturating_add(self.options.max_non_split_rounding) {
            return None;
        }
        Some(best)
    }

    /// Returns the block to use when the best-fitting block is in an expandable segment. This is the block that can
    /// grow the least or, while expandable segments are off, the first block that is not expandable.
    #[cold]
    fn find_best_expandable(&self, request: &Request) -> Option<BlockId> {
        let mut candidates = self.pool(request.pool).free.blocks_of_at_least(request.stream, request.size);
        if !request.expands {
            return candidates.find(|&id| !self.blocks[id].is_expandable());
        }
        let mut best = candidates.next()?;
        for next in candidates {
            if !self.blocks[best].is_expandable()
                || self.size_with_growth(next) >= self.size_with_growth(best)
            {
                break;
            }
            best = next;
        }
        Some(best)
    }

    /// Returns the size of a block plus any unmapped space after it.
    fn size_with_growth(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let next = block.next.to_option().map(|next| &self.blocks[next]).filter(|next| !next.mapped);
        block.size + next.map_or(0, |next| next.size)
    }

    /// Allocates a block from memory that is not in the pool's cache.
    #[cold]
    fn allocate_new(&mut self, request: &mut Request) -> Result<BlockId, AllocatorError> {
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
            return Err(self.record_out_of_memory(request));
        }
        self.release_all(request.context)?;
        self.stats.num_alloc_retries += 1;
        match self.new_segment(request)? {
            Some(block) => Ok(block),
            None => Err(self.record_out_of_memory(request)),
        }
    }

    /// Allocates a segment or maps pages of an expandable segment; returns `None` if there is not enough memory.
    fn new_segment(&mut self, request: &Request) -> Result<Option<BlockId>, AllocatorError> {
        let Request { segment: size, stream, pool, expands, context, .. } = *request;
        if self.limit.is_some_and(|limit| self.reserved.saturating_add(size) > limit) {
            return Ok(None);
        }
        self.reject_preemptively(request)?;
        if expands {
            return self.expand(request);
        }
        let address = match self.allocate_segment(request) {
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
        let age = self.take_next_age();
        let mut block = Block::new(address, size, address, age, (stream, pool));
        block.segment_stack = context.stack;
        Ok(Some(self.blocks.insert(block)))
    }

    /// Allocates a segment from the device or from the pool's own allocator.
    fn allocate_segment(&self, request: &Request) -> Result<u64, DeviceError> {
        let Request { segment, stream, .. } = *request;
        match &self.pool(request.pool).source {
            None => self.memory.allocate(segment),
            Some(source) => source.allocate(segment, self.id, stream).ok_or(DeviceError::OutOfMemory),
        }
    }

    /// Returns whether new memory for a pool is mapped into expandable segments.
    #[inline]
    fn expands(&self, pool: PoolId) -> bool {
        self.options.expandable_segments && self.pool(pool).source.is_none()
    }

    /// Searches the private pools that may serve requests for the default pool when memory runs out. As in PyTorch,
    /// blocks in expandable segments are not used for this.
    fn borrow_from_private_pools(&mut self, request: &mut Request) -> Option<BlockId> {
        if !request.pool.is_default() {
            return None;
        }
        let kind = request.pool.kind();
        self.private.pairs_for_oom().into_iter().find_map(|pair| {
            let borrowed = Request { pool: PoolId::of(pair, kind), expands: false, ..*request };
            let block = self.allocate_cached(&borrowed)?;
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

    /// Splits a block that was removed from its pool if it is too large, and marks the result as allocated.
    #[inline]
    fn finish_allocation(&mut self, found: BlockId, request: &Request) -> Allocation {
        let kind = request.pool.kind();
        let was_split = self.blocks[found].is_split();
        let counts_as_split = !self.blocks[found].is_expandable();
        let id = if self.should_split(&self.blocks[found], request) {
            let id = self.split(found, request.size);
            let rest = self.blocks[found].size;
            if counts_as_split && was_split {
                self.stats.inactive_split_bytes.decrease(kind, request.size);
            } else if counts_as_split {
                self.stats.inactive_split_bytes.increase(kind, rest);
                self.stats.inactive_split.increase(kind, 1);
            }
            id
        } else {
            if counts_as_split && was_split {
                self.stats.inactive_split_bytes.decrease(kind, self.blocks[found].size);
                self.stats.inactive_split.decrease(kind, 1);
            }
            found
        };
        let block = &mut self.blocks[id];
        block.allocated = true;
        block.requested = request.requested;
        block.stack = request.context.stack;
        let (address, size, place) = (block.address, block.size, Self::stream_and_pool(block));
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

    /// Splits `size` bytes off the front of a block as a new block and caches the rest. As in PyTorch, the new block
    /// has no segment stack.
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
        self.add_to_cache(rest);
        id
    }
}
