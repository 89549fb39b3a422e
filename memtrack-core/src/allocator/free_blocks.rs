//! The free blocks of a pool in the order of best fit: by stream, then size, then the age of the segment, then the place
//! in it. Finding, taking and putting back cost O(log n).

use super::block::{Block, BlockId};
use super::sizes::MIN_BLOCK;
use crate::event::StreamId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Size, age and offset in one number that compares as the three do. Sizes and offsets are multiples of 512 bytes and
/// below 2^60 and 2^54, so that they have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FitKey(u128);

const OFFSET_BITS: u32 = 45;
const AGE_BITS: u32 = 32;

impl FitKey {
    #[inline]
    fn of(block: &Block) -> Self {
        let offset = (block.address - block.base) / MIN_BLOCK;
        let key = Self::at_least(block.size).0;
        Self(key | u128::from(block.age) << OFFSET_BITS | u128::from(offset))
    }

    /// Before all keys of that size.
    #[inline]
    fn at_least(size: u64) -> Self {
        Self(u128::from(size / MIN_BLOCK) << (AGE_BITS + OFFSET_BITS))
    }
}

/// Free blocks by stream.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// In the order of the streams' handles.
    streams: Vec<(StreamId, BTreeMap<FitKey, BlockId>)>,
}

impl FreeBlocks {
    #[inline]
    fn of(&self, stream: StreamId) -> Option<&BTreeMap<FitKey, BlockId>> {
        let place = self.streams.binary_search_by_key(&stream, |(stream, _)| *stream).ok()?;
        Some(&self.streams[place].1)
    }

    #[inline]
    fn of_mut(&mut self, stream: StreamId) -> &mut BTreeMap<FitKey, BlockId> {
        let place = match self.streams.binary_search_by_key(&stream, |(stream, _)| *stream) {
            Ok(place) => place,
            Err(place) => {
                self.streams.insert(place, (stream, BTreeMap::new()));
                place
            }
        };
        &mut self.streams[place].1
    }

    #[inline]
    pub(super) fn insert(&mut self, id: BlockId, block: &Block) {
        self.of_mut(block.stream).insert(FitKey::of(block), id);
    }

    #[inline]
    pub(super) fn remove(&mut self, block: &Block) {
        self.of_mut(block.stream).remove(&FitKey::of(block));
    }

    /// The blocks of a stream with at least `size` bytes, best first.
    #[inline]
    pub(super) fn at_least(&self, stream: StreamId, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        let from = FitKey::at_least(size);
        self.of(stream).into_iter().flat_map(move |blocks| blocks.range(from..)).map(|(_, &id)| id)
    }

    /// The smallest block of a stream with at least `size` bytes.
    #[inline]
    pub(super) fn best(&self, stream: StreamId, size: u64) -> Option<BlockId> {
        let mut fitting = self.of(stream)?.range((Bound::Included(FitKey::at_least(size)), Bound::Unbounded));
        fitting.next().map(|(_, &id)| id)
    }

    /// The blocks of a stream with less than `size` bytes, largest first.
    pub(super) fn below(&self, stream: StreamId, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        let end = FitKey::at_least(size);
        self.of(stream).into_iter().flat_map(move |blocks| blocks.range(..end).rev()).map(|(_, &id)| id)
    }

    /// All of them in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.streams.iter().flat_map(|(_, blocks)| blocks.values().copied())
    }
}
