//! A pool's free blocks in best-fit order: by stream, size, age of the segment, and offset in the segment. Lookup,
//! removal and insertion take O(log n). `steps::malloc` decides whether a block found here may be used for a request.
//!
//! **Why a single 128-bit key?** Size, segment age and offset form one number, which a B-tree per stream compares. The
//! most recently freed block is not in the tree, so that alternating frees and requests need no tree operations.

use crate::settings::sizes::MIN_BLOCK;
use crate::state::blocks::{Block, BlockId};
use memtrack_model::event::StreamId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Size, age and offset combined into one number that preserves their order. They all fit, because sizes and offsets
/// are multiples of 512 bytes and are below 2^60 and 2^54.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FitKey(u128);

const OFFSET_BITS: u32 = 45;
const AGE_BITS: u32 = 32;
/// The largest size that fits into a key, in units of 512 bytes.
const MAX_UNITS: u64 = (1 << (128 - AGE_BITS - OFFSET_BITS)) - 1;

impl FitKey {
    #[inline(always)]
    fn of(block: &Block) -> Self {
        let offset = (block.address - block.base) / MIN_BLOCK;
        let key = Self::lower_bound(block.size).0;
        Self(key | u128::from(block.age) << OFFSET_BITS | u128::from(offset))
    }

    /// Returns a lower bound on the keys of blocks with at least `size` bytes. A size that is too large for a key is
    /// clamped, because no block is that large.
    #[inline(always)]
    fn lower_bound(size: u64) -> Self {
        Self(u128::from((size / MIN_BLOCK).min(MAX_UNITS)) << (AGE_BITS + OFFSET_BITS))
    }
}

/// The free blocks of one stream. The newest block is not in the tree, so no tree operation is needed in the usual case,
/// where frees and requests alternate.
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
    fn best_fit(&self, from: FitKey) -> Option<BlockId> {
        let newest = self.newest.filter(|(key, _)| *key >= from);
        // A block with a smaller key than the newest block is a better fit.
        let end = newest.map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        let better = if self.tree.is_empty() {
            None
        } else {
            self.tree.range((Bound::Included(from), end)).next().map(|(_, &id)| id)
        };
        better.or(newest.map(|(_, id)| id))
    }

    /// Iterates over all blocks whose keys are at least `from`, best fit first.
    fn from(&self, from: FitKey) -> impl Iterator<Item = BlockId> + '_ {
        let newest = self.newest.filter(|(key, _)| *key >= from);
        let pivot = newest.map_or(from, |(key, _)| key);
        let (below, above) = (self.tree.range(from..pivot), self.tree.range(pivot..));
        let newest = newest.into_iter().map(|(_, id)| id);
        below.map(|(_, &id)| id).chain(newest).chain(above.map(|(_, &id)| id))
    }

    /// Iterates over all blocks whose keys are below `end`, largest first.
    fn blocks_below(&self, end: FitKey) -> impl Iterator<Item = BlockId> + '_ {
        let newest = self.newest.filter(|(key, _)| *key < end);
        let pivot = newest.map_or(end, |(key, _)| key);
        let (below, above) = (self.tree.range(..pivot), self.tree.range(pivot..end));
        let newest = newest.into_iter().map(|(_, id)| id);
        above.rev().map(|(_, &id)| id).chain(newest).chain(below.rev().map(|(_, &id)| id))
    }
}

/// The free blocks by stream, sorted by the streams' handles. This is a list because there is usually one stream, and
/// rarely more than a few.
#[derive(Debug, Default)]
pub(crate) struct FreeBlocks {
    streams: Vec<(StreamId, StreamBlocks)>,
}

impl FreeBlocks {
    /// Returns the index of a stream, or the index at which to insert it if it is not in the list.
    #[inline(always)]
    fn index(&self, stream: StreamId) -> Result<usize, usize> {
        match self.streams.first() {
            Some(&(first, _)) if first == stream => Ok(0),
            _ => self.streams.binary_search_by_key(&stream, |&(stream, _)| stream),
        }
    }

    #[inline(always)]
    fn stream_blocks(&self, stream: StreamId) -> Option<&StreamBlocks> {
        let index = self.index(stream).ok()?;
        self.streams.get(index).map(|(_, blocks)| blocks)
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, id: BlockId, block: &Block) {
        let index = self.index(block.stream).unwrap_or_else(|index| self.add_stream(index, block.stream));
        self.streams[index].1.insert(FitKey::of(block), id);
    }

    #[cold]
    fn add_stream(&mut self, index: usize, stream: StreamId) -> usize {
        self.streams.insert(index, (stream, StreamBlocks::default()));
        index
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, block: &Block) {
        if let Ok(index) = self.index(block.stream) {
            self.streams[index].1.remove(FitKey::of(block));
        }
    }

    /// Iterates over a stream's blocks of at least `size` bytes, best fit first.
    pub(crate) fn blocks_of_at_least(
        &self,
        stream: StreamId,
        size: u64,
    ) -> impl Iterator<Item = BlockId> + '_ {
        self.stream_blocks(stream).into_iter().flat_map(move |blocks| blocks.from(FitKey::lower_bound(size)))
    }

    /// Returns the best-fitting block of a stream that has at least `size` bytes.
    #[inline(always)]
    pub(crate) fn best_fit(&self, stream: StreamId, size: u64) -> Option<BlockId> {
        self.stream_blocks(stream)?.best_fit(FitKey::lower_bound(size))
    }

    /// Iterates over a stream's blocks of less than `size` bytes, largest first.
    pub(crate) fn blocks_below(&self, stream: StreamId, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.stream_blocks(stream)
            .into_iter()
            .flat_map(move |blocks| blocks.blocks_below(FitKey::lower_bound(size)))
    }

    /// Iterates over all blocks in best-fit order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.streams.iter().flat_map(|(_, blocks)| blocks.from(FitKey::lower_bound(0)))
    }
}
