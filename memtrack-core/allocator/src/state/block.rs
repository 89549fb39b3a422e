//! Blocks: the adjacent pieces that make up a segment, each either allocated or free. All blocks are stored in
//! one arena and refer to their neighbours by number.

use crate::state::pools::PoolId;
use crate::state::stream_uses::StreamUses;
use memtrack_model::event::{StackId, StreamId};

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
    /// The pool's number of searches ([`Pool::searches`](super::pools::Pool::searches)) when the block became free,
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
    /// Adds a block and returns its id.
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
