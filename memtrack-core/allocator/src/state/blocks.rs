//! Blocks: the adjacent pieces that make up a segment, each either allocated or free. All blocks are stored in
//! one arena and refer to their neighbours by number. Allocated blocks are also found by address.

use crate::state::hash_order_map::HashOrderMap;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memtrack_model::event::{StackId, StreamId};
use memtrack_model::snapshot::pytorch::PoolKind;
use std::hash::BuildHasher;

/// A block's number in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// The id that stands for "no block".
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn to_option(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// An expandable range's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeId(pub(crate) u32);

impl RangeId {
    /// The id for blocks that are not in an expandable range.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// The number of a pool. Even numbers are small pools and odd numbers large pools; 0 and 1 are the default pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolId(pub(crate) u32);

impl PoolId {
    /// Returns the pool of the given kind in a pair. Pair 0 contains the default pools.
    #[inline]
    pub(crate) fn of(pair: u32, kind: PoolKind) -> Self {
        Self(2 * pair + u32::from(kind == PoolKind::Large))
    }

    #[inline]
    pub(crate) fn kind(self) -> PoolKind {
        if self.0.is_multiple_of(2) { PoolKind::Small } else { PoolKind::Large }
    }

    #[inline]
    pub(crate) fn is_default(self) -> bool {
        self.0 < 2
    }

    /// Returns the number of the pool's pair.
    #[inline]
    pub(crate) fn pair(self) -> u32 {
        self.0 / 2
    }
}

/// A set of streams, in the order of PyTorch's hash tables.
#[derive(Debug, Default)]
pub(crate) struct StreamUses(HashOrderMap<StreamId, ()>);

impl StreamUses {
    pub(crate) fn insert(&mut self, hash: u64, stream: StreamId) {
        if self.0.get_mut(hash, stream).is_none() {
            self.0.insert(hash, stream, ());
        }
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.0.keys()
    }

    /// Removes streams from the set; returns `None` if no streams are left.
    pub(crate) fn remove_streams(mut self: Box<Self>, streams: &[(u64, StreamId)]) -> Option<Box<Self>> {
        for &(hash, stream) in streams {
            self.0.remove(hash, stream);
        }
        (!self.0.is_empty()).then_some(self)
    }
}

/// One block. Sizes are in bytes.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The size of the last request for this block; it has no meaning while the block is free.
    pub(crate) requested: u64,
    /// The start of the block's segment or range.
    pub(crate) base: u64,
    pub(crate) stream: StreamId,
    /// The pool's number of searches (`Pool::searches`) when the block became free,
    /// from which its age is computed.
    pub(crate) cached_at_search: u64,
    /// The other streams that use the block. After a free, the block remains unavailable until their work is done.
    pub(crate) uses: Option<Box<StreamUses>>,
    pub(crate) prev: BlockId,
    pub(crate) next: BlockId,
    /// The segment's number in creation order. Among equal blocks, the one from the oldest segment is used first.
    pub(crate) age: u32,
    pub(crate) range: RangeId,
    /// The number of the block's events that are still pending.
    pub(crate) events: u32,
    /// The stack of the block's allocation.
    pub(crate) stack: StackId,
    /// The stack of the segment's allocation.
    pub(crate) segment_stack: StackId,
    pub(crate) pool: PoolId,
    pub(crate) allocated: bool,
    /// Whether the block is backed by memory.
    pub(crate) mapped: bool,
}

impl Block {
    /// Creates a free block that covers a whole segment.
    pub(crate) fn new(
        address: u64,
        size: u64,
        base: u64,
        age: u32,
        (stream, pool): (StreamId, PoolId),
    ) -> Self {
        Self {
            address,
            size,
            requested: 0,
            base,
            stream,
            cached_at_search: 0,
            uses: None,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            age,
            range: RangeId::NONE,
            events: 0,
            stack: Default::default(),
            segment_stack: Default::default(),
            pool,
            allocated: false,
            mapped: true,
        }
    }

    /// Returns whether the block is only a part of its segment.
    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }

    #[inline]
    pub(crate) fn is_expandable(&self) -> bool {
        self.range != RangeId::NONE
    }

    /// Returns whether the block is neither allocated nor used by a stream.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        !self.allocated && self.events == 0 && self.uses.is_none()
    }
}

/// All blocks on a device.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    slots: Vec<Block>,
    free_slots: Vec<BlockId>,
}

impl Blocks {
    #[inline(always)]
    pub(crate) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.free_slots.pop() {
            self.slots[id.0 as usize] = block;
            return id;
        }
        let id = BlockId(u32::try_from(self.slots.len()).expect("more than 4 G blocks"));
        self.slots.push(block);
        id
    }

    /// Removes a block that no neighbour, pool or queue refers to any more.
    #[inline]
    pub(crate) fn remove(&mut self, id: BlockId) {
        // A size of 0 marks the slot as unused, because no block is empty.
        self.slots[id.0 as usize].size = 0;
        self.free_slots.push(id);
    }

    /// Iterates over all blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        let numbered = self.slots.iter().enumerate().map(|(index, block)| (BlockId(index as u32), block));
        numbered.filter(|(_, block)| block.size > 0)
    }
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.slots[id.0 as usize]
    }
}

/// A table of the allocated blocks, by address. The newest block is not in the table, so that freeing a block
/// before another one is allocated needs no table operation.
#[derive(Debug)]
pub(crate) struct LiveBlocks {
    table: HashTable<(u64, BlockId)>,
    /// The newest block, or [`Self::NONE`] if it has been freed.
    newest: (u64, BlockId),
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self { table: HashTable::new(), newest: Self::NONE }
    }
}

#[inline(always)]
fn hash(address: u64) -> u64 {
    FixedState::default().hash_one(address)
}

impl LiveBlocks {
    const NONE: (u64, BlockId) = (0, BlockId::NONE);

    /// Adds an allocated block. There must be no other block at its address.
    #[inline(always)]
    pub(crate) fn insert(&mut self, address: u64, id: BlockId) {
        let older = std::mem::replace(&mut self.newest, (address, id));
        if older.0 != 0 {
            self.table.insert_unique(hash(older.0), older, |block| hash(block.0));
        }
    }

    /// Removes the block that is being freed at an address and returns its id, or `None` if there is no such block.
    #[inline(always)]
    pub(crate) fn remove(&mut self, address: u64) -> Option<BlockId> {
        if address == self.newest.0 {
            return std::mem::replace(&mut self.newest, Self::NONE).1.to_option();
        }
        let found = self.table.find_entry(hash(address), |block| block.0 == address);
        found.ok().map(|entry| entry.remove().0.1)
    }

    pub(crate) fn get(&self, address: u64) -> Option<BlockId> {
        if address == self.newest.0 {
            return self.newest.1.to_option();
        }
        self.table.find(hash(address), |block| block.0 == address).map(|block| block.1)
    }
}

/// A reserved address range: its start, its size and its page size, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) page: u64,
}

/// The reserved address ranges, by number.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    slots: Vec<Range>,
    unused: Vec<RangeId>,
}

impl Ranges {
    pub(crate) fn insert(&mut self, range: Range) -> RangeId {
        if let Some(id) = self.unused.pop() {
            self.slots[id.0 as usize] = range;
            return id;
        }
        self.slots.push(range);
        RangeId((self.slots.len() - 1) as u32)
    }

    pub(crate) fn get(&self, id: RangeId) -> Range {
        self.slots[id.0 as usize]
    }

    pub(crate) fn remove(&mut self, id: RangeId) {
        self.unused.push(id);
    }
}
