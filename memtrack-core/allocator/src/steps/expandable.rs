//! Expandable segments: address space that is reserved once and into which memory is mapped page by page, so that a
//! segment can grow at its end.

use crate::error::AllocatorError;
use crate::memory::{DeviceError, DeviceMemory};
use crate::recorder::Caller;
use crate::settings::sizes::{page_size, round_up};
use crate::state::blocks::{Block, BlockId, PoolId, Range};
use crate::state::device::Device;
use crate::steps::malloc::Request;
use memtrack_model::event::{Action, StackId, StreamId};

impl<M: DeviceMemory> Device<M> {
    /// Finds room for the request in a range, maps the missing pages and returns the block. Returns `None` if there
    /// is not enough memory; pages mapped up to that point are kept as free blocks.
    pub(crate) fn expand(&mut self, request: &Request) -> Result<Option<BlockId>, AllocatorError> {
        let Some(mut found) = self.find_room(request)? else { return Ok(None) };
        let size = request.size;
        if !self.blocks[found].mapped {
            let part = self.blocks[found].size.min(size);
            if !self.map(found, part, request.context)? {
                return Ok(None);
            }
        }
        while self.blocks[found].size < size {
            let missing = size - self.blocks[found].size;
            let Some(next) = self.blocks[found].next.to_option() else { return Ok(None) };
            let part = self.blocks[next].size.min(missing);
            if !self.map(next, part, request.context)? {
                return Ok(None);
            }
            found = next;
        }
        self.remove_from_cache(found);
        Ok(Some(found))
    }

    /// Returns the first block of the request's stream at which a large enough run of consecutive free and unmapped
    /// blocks starts, or the block of a new range if there is none.
    fn find_room(&mut self, request: &Request) -> Result<Option<BlockId>, AllocatorError> {
        let Request { size, stream, pool, .. } = *request;
        let unmapped = self.pool(pool).unmapped.range((stream, 0)..=(stream, u64::MAX));
        for (_, &id) in unmapped {
            let prev = self.blocks[id].prev;
            let start = prev.to_option().filter(|&prev| self.blocks[prev].is_free()).unwrap_or(id);
            if self.has_room(start, size) {
                return Ok(Some(start));
            }
        }
        self.reserve_range(size, stream, pool)
    }

    fn has_room(&self, start: BlockId, size: u64) -> bool {
        let mut bytes = 0;
        let mut at = start;
        while bytes < size {
            let Some(block) = at.to_option().map(|id| &self.blocks[id]).filter(|block| block.is_free())
            else {
                return false;
            };
            bytes += block.size;
            at = block.next;
        }
        true
    }

    /// Reserves a new range, unless `needed` bytes exceed the size of a range.
    fn reserve_range(
        &mut self,
        needed: u64,
        stream: StreamId,
        pool: PoolId,
    ) -> Result<Option<BlockId>, AllocatorError> {
        let page = page_size(pool.kind(), self.options.large_segment_size);
        let size = round_up(self.options.reserve.reserved_bytes(self.total_memory), page);
        if size < needed {
            return Ok(None);
        }
        let base = match self.memory.reserve(size) {
            Ok(base) => base,
            Err(DeviceError::OutOfMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let age = self.take_next_age();
        let mut block = Block::new(base, size, base, age, (stream, pool));
        block.mapped = false;
        block.range = self.ranges.insert(Range { base, size, page });
        let id = self.blocks.insert(block);
        self.pool_mut(pool).unmapped.insert((stream, base), id);
        Ok(Some(id))
    }

    /// Maps memory for the first `size` bytes of an unmapped block, rounded up to whole pages, and turns them into a
    /// free block. Returns `false` if there is not enough memory.
    fn map(&mut self, id: BlockId, size: u64, context: Caller) -> Result<bool, AllocatorError> {
        let block = &self.blocks[id];
        let (address, place, age) = (block.address, Self::stream_and_pool(block), block.age);
        let range = self.ranges.get(block.range);
        // Unmapped blocks start and end at page boundaries.
        let mapped = round_up(size, range.page);
        match self.memory.map(address, mapped, range.page) {
            Ok(()) => {}
            Err(DeviceError::OutOfMemory) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.remove_from_cache(id);
        let block = &mut self.blocks[id];
        block.mapped = true;
        let rest_size = block.size - mapped;
        if rest_size > 0 {
            let mut rest = Block::new(address + mapped, rest_size, block.base, age, place);
            rest.mapped = false;
            rest.range = block.range;
            block.size = mapped;
            let rest = self.insert_after(id, rest);
            self.pools[place.1.0 as usize].unmapped.insert((place.0, address + mapped), rest);
        }
        let (prev, next) = (self.blocks[id].prev, self.blocks[id].next);
        self.merge(id, prev);
        self.merge(id, next);
        self.add_to_cache(id);
        self.count_reserved(place.1, mapped as i64);
        self.stats.num_device_alloc += 1;
        self.record(Action::SegmentMap, address, mapped, place, context);
        let block = &mut self.blocks[id];
        if block.prev == BlockId::NONE && block.segment_stack == StackId::NONE {
            block.segment_stack = context.stack;
        }
        Ok(true)
    }

    /// Unmaps the pages that a free block covers completely. The rest of the block stays cached.
    pub(crate) fn unmap(&mut self, id: BlockId, context: Caller) -> Result<(), AllocatorError> {
        let block = &self.blocks[id];
        let (address, end, place) = (block.address, block.address + block.size, Self::stream_and_pool(block));
        let (age, base, range_id) = (block.age, block.base, block.range);
        let context = context.or_stack(block.segment_stack);
        let range = self.ranges.get(range_id);
        let first = range.base + round_up(address - range.base, range.page);
        let last = range.base + (end - range.base) / range.page * range.page;
        if first >= last {
            return Ok(());
        }
        self.memory.wait_for_stream(place.0)?;
        self.memory.unmap(first, last - first, range.page)?;
        self.remove_from_cache(id);
        let piece =
            |from: u64, to: u64| Block { range: range_id, ..Block::new(from, to - from, base, age, place) };
        if first > address {
            let before = self.insert_before(id, piece(address, first));
            self.add_to_cache(before);
        }
        if end > last {
            let after = self.insert_after(id, piece(last, end));
            self.add_to_cache(after);
        }
        let block = &mut self.blocks[id];
        (block.address, block.size, block.mapped) = (first, last - first, false);
        let (prev, next) = (block.prev, block.next);
        self.merge(id, prev);
        self.merge(id, next);
        let block = &self.blocks[id];
        let key = (block.stream, block.address);
        self.pool_mut(place.1).unmapped.insert(key, id);
        self.count_reserved(place.1, -((last - first) as i64));
        self.stats.num_device_free += 1;
        self.record(Action::SegmentUnmap, first, last - first, place, context);
        Ok(())
    }

    /// Releases a range's address space; `id` is the unmapped block that covers the whole range.
    pub(crate) fn release_range(&mut self, id: BlockId) -> Result<(), AllocatorError> {
        let range_id = self.blocks[id].range;
        let range = self.ranges.get(range_id);
        self.memory.unreserve(range.base, range.size)?;
        self.remove_from_cache(id);
        self.blocks.remove(id);
        self.ranges.remove(range_id);
        Ok(())
    }

    fn insert_after(&mut self, id: BlockId, mut block: Block) -> BlockId {
        let next = self.blocks[id].next;
        (block.prev, block.next) = (id, next);
        let new = self.blocks.insert(block);
        self.blocks[id].next = new;
        if let Some(next) = next.to_option() {
            self.blocks[next].prev = new;
        }
        new
    }

    fn insert_before(&mut self, id: BlockId, mut block: Block) -> BlockId {
        let prev = self.blocks[id].prev;
        (block.prev, block.next) = (prev, id);
        let new = self.blocks.insert(block);
        self.blocks[id].prev = new;
        if let Some(prev) = prev.to_option() {
            self.blocks[prev].next = new;
        }
        new
    }
}
