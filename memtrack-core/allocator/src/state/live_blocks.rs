//! The allocated blocks, by address.

use crate::state::block::BlockId;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

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

    /// Returns the block at an address.
    pub(crate) fn get(&self, address: u64) -> Option<BlockId> {
        if address == self.newest.0 {
            return self.newest.1.to_option();
        }
        self.table.find(hash(address), |block| block.0 == address).map(|block| block.1)
    }
}
