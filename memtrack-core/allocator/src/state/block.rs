//! Blocks: pieces of a segment, used or free, side by side without a gap. They are in one arena and refer to
//! their neighbours by number.

use crate::state::pools::PoolId;
use crate::state::stream_uses::StreamUses;
use memtrack_model::event::{StackId, StreamId};

/// The number of a block in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// No block.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// The number of an expandable range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeId(pub(crate) u32);

impl RangeId {
    /// The value for blocks of ordinary segments.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// One block. Sizes in bytes.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The size of the last request for it; stale while it is free.
    pub(crate) requested: u64,
    /// The start of its segment or range.
    pub(crate) base: u64,
    pub(crate) stream: StreamId,
    /// The pool's count of searches when the block became free.
    pub(crate) cached_at_search: u64,
    /// Streams that must finish before it is free.
    pub(crate) uses: Option<Box<StreamUses>>,
    pub(crate) prev: BlockId,
    pub(crate) next: BlockId,
    /// The creation order of the segment: the older of equal blocks is used first.
    pub(crate) age: u32,
    pub(crate) range: RangeId,
    /// The number of events that are not done yet.
    pub(crate) events: u32,
    /// The stack of its allocation.
    pub(crate) stack: StackId,
    /// The stack of its segment's allocation.
    pub(crate) segment_stack: StackId,
    pub(crate) pool: PoolId,
    pub(crate) allocated: bool,
    /// Whether it is backed by memory.
    pub(crate) mapped: bool,
}

impl Block {
    /// Creates an unused block that is alone in its segment.
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

    /// Returns whether it is only a part of its segment.
    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }

    #[inline]
    pub(crate) fn is_expandable(&self) -> bool {
        self.range != RangeId::NONE
    }

    /// Returns whether it is unused.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        !self.allocated && self.events == 0 && self.uses.is_none()
    }
}

/// All blocks of a device.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    slots: Vec<Block>,
    unused: Vec<BlockId>,
}

impl Blocks {
    /// Adds a block.
    #[inline(always)]
    pub(crate) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.unused.pop() {
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
        // A size of 0 marks it: no real block is empty.
        self.slots[id.0 as usize].size = 0;
        self.unused.push(id);
    }

    /// Returns all blocks that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        let numbered = self.slots.iter().enumerate().map(|(place, block)| (BlockId(place as u32), block));
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
