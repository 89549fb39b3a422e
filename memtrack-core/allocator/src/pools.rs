//! Pools: a small and a large default one, and two for each private pool.

use super::block::{Block, BlockId, Blocks};
use super::free_blocks::FreeBlocks;
use super::private_pools::MempoolId;
use super::sizes::{SMALL_BUFFER, SMALL_LIMIT};
use super::stats::PoolKind;
use memtrack_model::event::{DeviceId, StreamId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The number of a pool: even ones are small, odd ones large; 0 and 1 are the default pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(pub(super) u32);

impl PoolId {
    /// The pool of that kind in the pair with this number; pair 0 is the default one.
    #[inline]
    pub(super) fn of(pair: u32, kind: PoolKind) -> Self {
        Self(2 * pair + u32::from(kind == PoolKind::Large))
    }

    #[inline]
    pub(super) fn kind(self) -> PoolKind {
        if self.0.is_multiple_of(2) { PoolKind::Small } else { PoolKind::Large }
    }

    #[inline]
    pub(super) fn is_default(self) -> bool {
        self.0 < 2
    }

    /// The number of its pair.
    #[inline]
    pub(super) fn pair(self) -> u32 {
        self.0 / 2
    }
}

/// The kind of pool that blocks of `size` bytes come from.
#[inline]
pub(super) fn kind_of(size: u64) -> PoolKind {
    if size <= SMALL_LIMIT { PoolKind::Small } else { PoolKind::Large }
}

/// Where the segments of a pool come from, if not from the device: `MemPool(allocator=…)`.
pub trait PoolAllocator: fmt::Debug + Send + Sync {
    /// Hands out a segment; none where there is not enough memory.
    fn allocate(&self, size: u64, device: DeviceId, stream: StreamId) -> Option<u64>;

    /// Takes a segment back.
    fn release(&self, address: u64, size: u64, device: DeviceId, stream: StreamId);
}

/// One pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) free: FreeBlocks,
    /// Blocks of expandable ranges without memory behind them, by stream and address.
    pub(super) unmapped: BTreeMap<(StreamId, u64), BlockId>,
    /// Searches that count for the age of garbage.
    pub(super) searches: u64,
    /// The private pool it belongs to, or (0, 0).
    pub(super) owner: MempoolId,
    /// Blocks are never split.
    pub(super) no_split: bool,
    /// Who has its segments; none: the device.
    pub(super) source: Option<Arc<dyn PoolAllocator>>,
}

impl Pool {
    pub(super) fn new(owner: MempoolId) -> Self {
        Self {
            free: FreeBlocks::default(),
            unmapped: BTreeMap::new(),
            searches: 0,
            owner,
            no_split: false,
            source: None,
        }
    }

    /// Takes a free block in; its age begins.
    #[inline(always)]
    pub(super) fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.cached_at_search = self.searches;
        self.free.insert(id, block);
    }

    /// Takes a block out of the set it is in.
    #[inline(always)]
    pub(super) fn remove(&mut self, block: &Block) {
        if block.mapped {
            self.free.remove(block);
        } else {
            self.unmapped.remove(&(block.stream, block.address));
        }
    }

    /// How many searches a free block has seen without being taken.
    pub(super) fn age(&self, block: &Block) -> u64 {
        self.searches - block.cached_at_search
    }

    /// The bytes it holds free.
    pub(super) fn free_bytes(&self, blocks: &Blocks) -> u64 {
        self.free.iter().map(|id| blocks[id].size).sum()
    }
}

/// The page of an expandable range of that kind, in bytes.
pub(super) fn page_size(kind: PoolKind, large_segment_size: u64) -> u64 {
    match kind {
        PoolKind::Small => SMALL_BUFFER,
        PoolKind::Large => large_segment_size,
    }
}
