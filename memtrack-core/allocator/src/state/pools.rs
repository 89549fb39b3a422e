//! Pools of free blocks. There are two default pools, one for small and one for large blocks, and two such pools
//! for each private pool.

use crate::state::blocks::{Block, BlockId, Blocks};
use crate::state::free_blocks::FreeBlocks;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::MempoolId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An allocator that provides a pool's segments in place of the device, as in `MemPool(allocator=…)`.
pub trait PoolAllocator: fmt::Debug + Send + Sync {
    /// Allocates a segment; returns `None` if there is not enough memory.
    fn allocate(&self, size: u64, device: DeviceId, stream: StreamId) -> Option<u64>;

    /// Releases a segment.
    fn release(&self, address: u64, size: u64, device: DeviceId, stream: StreamId);
}

/// A pool of free blocks.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) free: FreeBlocks,
    /// Blocks of expandable ranges that are not backed by memory, by stream and address.
    pub(crate) unmapped: BTreeMap<(StreamId, u64), BlockId>,
    /// The number of searches so far. The age of cached blocks is measured in searches.
    pub(crate) searches: u64,
    /// The id of the private pool that this pool belongs to; (0, 0) for a default pool.
    pub(crate) owner: MempoolId,
    /// Whether blocks are never split.
    pub(crate) no_split: bool,
    /// The allocator for the pool's segments; `None` means the device.
    pub(crate) source: Option<Arc<dyn PoolAllocator>>,
}

impl Pool {
    pub(crate) fn new(owner: MempoolId) -> Self {
        Self {
            free: FreeBlocks::default(),
            unmapped: BTreeMap::new(),
            searches: 0,
            owner,
            no_split: false,
            source: None,
        }
    }

    /// Inserts a free block and sets its age to 0.
    #[inline(always)]
    pub(crate) fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.cached_at_search = self.searches;
        self.free.insert(id, block);
    }

    /// Removes a block from the pool's free or unmapped blocks.
    #[inline(always)]
    pub(crate) fn remove(&mut self, block: &Block) {
        if block.mapped {
            self.free.remove(block);
        } else {
            self.unmapped.remove(&(block.stream, block.address));
        }
    }

    /// Returns the number of searches since a block became free.
    pub(crate) fn age(&self, block: &Block) -> u64 {
        self.searches - block.cached_at_search
    }

    /// Returns the number of bytes in the pool's free blocks.
    pub(crate) fn free_bytes(&self, blocks: &Blocks) -> u64 {
        self.free.iter().map(|id| blocks[id].size).sum()
    }
}
