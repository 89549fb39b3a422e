//! Gives each distinct stack a number. The table is shared by all threads; each thread keeps a small cache of its own in
//! front of it, so that a stack seen before costs a hash and one compare.

use crate::event::StackId;
use crate::snapshot::StackTable;
use dashmap::DashMap;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

/// At most this many addresses are kept (512 MiB); stacks beyond count as unknown.
const MAX_ADDRESSES: usize = 1 << 26;

/// All distinct stacks of the process.
///
/// A stack is known by its 64-bit hash: among a million distinct stacks the chance that any two share one is below
/// one in 30 million.
pub(crate) struct StackInterner {
    by_hash: DashMap<u64, StackId, FixedState>,
    table: Mutex<StackTable>,
}

impl StackInterner {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            by_hash: DashMap::with_hasher_and_shard_amount(FixedState::default(), 64),
            table: Mutex::default(),
        }
    }

    /// The id of a stack (outermost first) seen before, by its hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<StackId> {
        self.by_hash.get(&hash).map(|id| *id)
    }

    /// The id of a stack, which is stored innermost first, as reports read it.
    #[cold]
    pub(crate) fn insert(&self, hash: u64, outermost_first: &[u64]) -> StackId {
        *self.by_hash.entry(hash).or_insert_with(|| {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            if table.addresses.len() + outermost_first.len() > MAX_ADDRESSES {
                return StackId::NONE;
            }
            let mut innermost_first = outermost_first.to_vec();
            innermost_first.reverse();
            table.push(&innermost_first)
        })
    }

    /// All stacks so far.
    pub(crate) fn table(&self) -> StackTable {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fills `copy` with the stacks from `first` on, its own from 1 on, but not many more than `most` and not much more
    /// than a megabyte of them.
    pub(crate) fn copy(&self, first: StackId, most: usize, copy: &mut StackTable) {
        const MOST_ADDRESSES: usize = 128 << 10;
        copy.offsets.truncate(2);
        copy.addresses.clear();
        // Room is made before the table is locked.
        copy.offsets.reserve(most);
        copy.addresses.reserve(MOST_ADDRESSES);
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = first.index()..table.len().min(first.index() + most);
        for id in ids {
            let addresses = table.get(StackId(id as u32));
            if copy.addresses.len() + addresses.len() > MOST_ADDRESSES && copy.len() > 1 {
                break;
            }
            copy.push(addresses);
        }
    }
}

/// The hash by which stacks are known.
#[inline(always)]
pub(crate) fn hash(addresses: &[u64]) -> u64 {
    const STATE: FixedState = FixedState::with_seed(0x6d65_6d74_7261_636b);
    STATE.hash_one(addresses)
}

const CACHE_SLOTS: usize = 4096;

/// One thread's newest stacks, found by hash in one look.
pub(crate) struct StackCache {
    slots: Box<[(u64, StackId)]>,
}

impl StackCache {
    /// Allocates 64 KB.
    pub(crate) fn new() -> Self {
        Self { slots: vec![(0, StackId::NONE); CACHE_SLOTS].into_boxed_slice() }
    }

    /// The id kept for `hash`.
    #[inline(always)]
    pub(crate) fn get(&self, hash: u64) -> Option<StackId> {
        let slot = self.slots[hash as usize % CACHE_SLOTS];
        (slot.0 == hash).then_some(slot.1)
    }

    /// Keeps an id in place of whatever shared its slot.
    #[inline(always)]
    pub(crate) fn put(&mut self, hash: u64, stack: StackId) {
        self.slots[hash as usize % CACHE_SLOTS] = (hash, stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_keeps_its_number() {
        let interner = StackInterner::new();
        let stack = [1, 2, 3];
        let id = interner.insert(hash(&stack), &stack);
        assert_eq!(interner.insert(hash(&stack), &stack), id);
        assert_eq!(interner.find(hash(&stack)), Some(id));
        assert_eq!(interner.table().get(id), &[3, 2, 1]);
    }

    #[test]
    fn a_cache_slot_holds_the_newest() {
        let mut cache = StackCache::new();
        cache.put(5, StackId(1));
        assert_eq!(cache.get(5), Some(StackId(1)));
        cache.put(5 + CACHE_SLOTS as u64, StackId(2));
        assert_eq!(cache.get(5), None);
    }
}
