//! The free blocks of a pool in the order of best fit: by stream, then size, then the age of the segment,
//! then the offset in it. Finding, removing and inserting cost O(log n). `steps::malloc` decides whether the found block may
//! serve a request.
//!
//! **Why one 128-bit key?** Size, age of the segment and offset compare as one number in a B-tree per stream. The block
//! that was freed last stays out of the tree, so that alternating frees and requests cost no tree operation.

use crate::settings::sizes::MIN_BLOCK;
use crate::state::block::{Block, BlockId};
use memtrack_model::event::StreamId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Size, age and offset in one number that compares as the three do. Sizes and offsets are multiples of 512
/// bytes and below 2^60 and 2^54, so that they fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FitKey(u128);

const OFFSET_BITS: u32 = 45;
const AGE_BITS: u32 = 32;
/// The largest size that fits, in units of 512 bytes.
const MAX_UNITS: u64 = (1 << (128 - AGE_BITS - OFFSET_BITS)) - 1;

impl FitKey {
    #[inline(always)]
    fn of(block: &Block) -> Self {
        let offset = (block.address - block.base) / MIN_BLOCK;
        let key = Self::at_least(block.size).0;
        Self(key | u128::from(block.age) << OFFSET_BITS | u128::from(offset))
    }

    /// Returns a key before all keys of that size. A requested size may be larger than any block; the largest
    /// possible size is then used.
    #[inline(always)]
    fn at_least(size: u64) -> Self {
        Self(u128::from((size / MIN_BLOCK).min(MAX_UNITS)) << (AGE_BITS + OFFSET_BITS))
    }
}

/// The free blocks of one stream. The newest one is not in the tree: blocks that are freed and reallocated
/// alternately, as most are, never touch it.
#[derive(Debug, Default)]
struct StreamBlocks {
    tree: BTreeMap<FitKey, BlockId>,
    newest: Option<(FitKey, BlockId)>,
}

impl StreamBlocks {
    #[inline(always)]
    fn insert(&mut self, key: FitKey, id: BlockId) {
        if let Some((key, id)) = self.newest.replace((key, id)) {
            self.tree.insert(key, id);
        }
    }

    #[inline(always)]
    fn remove(&mut self, key: FitKey) {
        if self.newest.is_some_and(|(newest, _)| newest == key) {
            self.newest = None;
        } else {
            self.tree.remove(&key);
        }
    }

    #[inline(always)]
    fn best(&self, from: FitKey) -> Option<BlockId> {
        let newest = self.newest.filter(|(key, _)| *key >= from);
        // A block smaller than the newest fits better.
        let end = newest.map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        let better = if self.tree.is_empty() {
            None
        } else {
            self.tree.range((Bound::Included(from), end)).next().map(|(_, &id)| id)
        };
        better.or(newest.map(|(_, id)| id))
    }

    /// Returns all blocks from `from` on, best first.
    fn from(&self, from: FitKey) -> impl Iterator<Item = BlockId> + '_ {
        let newest = self.newest.filter(|(key, _)| *key >= from);
        let pivot = newest.map_or(from, |(key, _)| key);
        let (below, above) = (self.tree.range(from..pivot), self.tree.range(pivot..));
        let newest = newest.into_iter().map(|(_, id)| id);
        below.map(|(_, &id)| id).chain(newest).chain(above.map(|(_, &id)| id))
    }

    /// Returns all blocks below `end`, largest first.
    fn below(&self, end: FitKey) -> impl Iterator<Item = BlockId> + '_ {
        let newest = self.newest.filter(|(key, _)| *key < end);
        let pivot = newest.map_or(end, |(key, _)| key);
        let (below, above) = (self.tree.range(..pivot), self.tree.range(pivot..end));
        let newest = newest.into_iter().map(|(_, id)| id);
        above.rev().map(|(_, &id)| id).chain(newest).chain(below.rev().map(|(_, &id)| id))
    }
}

/// Free blocks by stream, in the order of the streams' handles. A list, because there are rarely more than a
/// few streams, and usually one.
#[derive(Debug, Default)]
pub(crate) struct FreeBlocks {
    streams: Vec<(StreamId, StreamBlocks)>,
}

impl FreeBlocks {
    /// Returns the index of a stream, or where it would be inserted.
    #[inline(always)]
    fn place(&self, stream: StreamId) -> Result<usize, usize> {
        match self.streams.first() {
            Some(&(first, _)) if first == stream => Ok(0),
            _ => self.streams.binary_search_by_key(&stream, |&(stream, _)| stream),
        }
    }

    #[inline(always)]
    fn of(&self, stream: StreamId) -> Option<&StreamBlocks> {
        let place = self.place(stream).ok()?;
        self.streams.get(place).map(|(_, blocks)| blocks)
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, id: BlockId, block: &Block) {
        let place = self.place(block.stream).unwrap_or_else(|place| self.begin(place, block.stream));
        self.streams[place].1.insert(FitKey::of(block), id);
    }

    /// Adds a stream at its index.
    #[cold]
    fn begin(&mut self, place: usize, stream: StreamId) -> usize {
        self.streams.insert(place, (stream, StreamBlocks::default()));
        place
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, block: &Block) {
        if let Ok(place) = self.place(block.stream) {
            self.streams[place].1.remove(FitKey::of(block));
        }
    }

    /// Returns the blocks of a stream with at least `size` bytes, best first.
    pub(crate) fn at_least(&self, stream: StreamId, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.of(stream).into_iter().flat_map(move |blocks| blocks.from(FitKey::at_least(size)))
    }

    /// Returns the best block of a stream with at least `size` bytes.
    #[inline(always)]
    pub(crate) fn best(&self, stream: StreamId, size: u64) -> Option<BlockId> {
        self.of(stream)?.best(FitKey::at_least(size))
    }

    /// Returns the blocks of a stream with less than `size` bytes, largest first.
    pub(crate) fn below(&self, stream: StreamId, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.of(stream).into_iter().flat_map(move |blocks| blocks.below(FitKey::at_least(size)))
    }

    /// Returns all blocks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.streams.iter().flat_map(|(_, blocks)| blocks.from(FitKey::at_least(0)))
    }
}
