//! Frees a block, either at once or, if other streams use it, when those streams are done with it.

use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::recorder::Caller;
use crate::state::blocks::BlockId;
use crate::state::device::Device;
use memtrack_model::event::{Action, StackId};
use memtrack_model::options::Context;

impl<M: DeviceMemory> Device<M> {
    /// Frees the block at `address`; returns `false` if no allocated block starts there.
    #[inline]
    pub(crate) fn free(&mut self, address: u64, context: Caller) -> Result<bool, AllocatorError> {
        let Some(id) = self.live.remove(address) else { return Ok(false) };
        let block = &mut self.blocks[id];
        block.allocated = false;
        let (size, requested, place, kind) =
            (block.size, block.requested, Self::stream_and_pool(block), block.pool.kind());
        let used_elsewhere = block.uses.is_some();
        self.stats.allocation.decrease(kind, 1);
        self.stats.allocated_bytes.decrease(kind, size);
        let context = self.context_of_free(id, context);
        self.record(Action::FreeRequested, address, requested, place, context);
        if size >= self.options.max_split_size {
            self.stats.oversize_allocations.decrease(1);
        }
        if used_elsewhere && self.private.is_capturing() {
            self.deferred.defer(id);
        } else if used_elsewhere {
            // If an event cannot be recorded, the next request tries again.
            self.record_events(id).inspect_err(|_| self.deferred.defer(id))?;
        } else {
            self.complete_free(id, context);
        }
        Ok(true)
    }

    /// Returns the stack of a free if it was captured, or else the stack of the allocation. As in PyTorch, if stacks
    /// of frees are not captured, the free of a block that waited for streams has the stack of the request that
    /// queried them.
    #[inline]
    pub(crate) fn context_of_free(&self, id: BlockId, context: Caller) -> Caller {
        match self.history.stacks {
            Context::Alloc | Context::All => context.or_stack(self.blocks[id].stack),
            Context::None | Context::State => Caller { stack: StackId::NONE, ..context },
        }
    }

    /// Completes the free of a block that is no longer used: merges it with its free neighbours and caches it.
    #[inline(always)]
    pub(crate) fn complete_free(&mut self, id: BlockId, context: Caller) {
        let block = &mut self.blocks[id];
        let (size, requested) = (block.size, block.requested);
        let (address, place, kind) = (block.address, Self::stream_and_pool(block), block.pool.kind());
        let counts_as_split = !block.is_expandable();
        block.stack = StackId::NONE;
        self.deferred.forget(id);
        let (prev, next) = (block.prev, block.next);
        self.record(Action::FreeCompleted, address, requested, place, context);
        let (mut blocks_change, mut bytes_change) = (0, 0);
        for neighbour in [prev, next] {
            let merged = self.merge(id, neighbour);
            if merged > 0 {
                blocks_change -= 1;
                bytes_change -= merged as i64;
            }
        }
        self.add_to_cache(id);
        if self.blocks[id].is_split() {
            blocks_change += 1;
            bytes_change += self.blocks[id].size as i64;
        }
        if counts_as_split {
            self.stats.inactive_split.change(kind, blocks_change);
            self.stats.inactive_split_bytes.change(kind, bytes_change);
        }
        self.stats.active.decrease(kind, 1);
        self.stats.active_bytes.decrease(kind, size);
        self.stats.requested_bytes.decrease(kind, requested);
    }

    /// Merges a neighbour into the block `into`, which must not be in a pool, if the neighbour is free and the two
    /// blocks are both mapped or both unmapped. Returns the neighbour's size, or 0 if it was not merged.
    #[inline]
    pub(crate) fn merge(&mut self, into: BlockId, neighbour: BlockId) -> u64 {
        let Some(neighbour) = neighbour.to_option() else { return 0 };
        let other = &self.blocks[neighbour];
        if !other.is_free() || other.mapped != self.blocks[into].mapped {
            return 0;
        }
        self.remove_from_cache(neighbour);
        let other = &self.blocks[neighbour];
        let (size, prev, next) = (other.size, other.prev, other.next);
        let (address, segment_stack) = (other.address, other.segment_stack);
        let block = &mut self.blocks[into];
        block.size += size;
        if block.prev == neighbour {
            block.address = address;
            block.prev = prev;
            block.segment_stack = segment_stack;
            if let Some(prev) = prev.to_option() {
                self.blocks[prev].next = into;
            }
        } else {
            block.next = next;
            if let Some(next) = next.to_option() {
                self.blocks[next].prev = into;
            }
        }
        self.blocks.remove(neighbour);
        size
    }
}
