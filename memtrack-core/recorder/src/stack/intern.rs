//! Gives each distinct stack a number. The table is shared by all threads; each thread has a small cache in front of
//! it, so that a stack seen before costs a hash and one compare.

use crate::internal_bytes;
use crate::shared_map::SharedMap;
use foldhash::fast::FixedState;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::StackTable;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// At most this many addresses are kept (24 MiB), and [`MAX_STACKS`] stacks (some 12 MiB with their index). Events
/// with other stacks count as without a stack, and their number is reported.
const MAX_ADDRESSES: usize = 3 << 20;
const MAX_STACKS: usize = 1 << 18;

/// Addresses are stored in pieces of this many (512 KiB): growing copies nothing, and no stack is split between two
/// pieces.
const PIECE: usize = 1 << 16;

/// The most pieces: stacks have at most some hundred addresses, so hardly any is unused at a piece's end.
const MAX_PIECES: usize = MAX_ADDRESSES / PIECE + 1;

/// The most memory of the tables: the table of hashes may just have doubled.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = MAX_PIECES * PIECE * size_of::<u64>()
    + (MAX_STACKS * 2 + MAX_STACKS * 2 / 7) * (size_of::<(u64, StackId)>() + 1)
    + MAX_STACKS * size_of::<(u16, u16, u16)>();

/// All distinct stacks of the process.
///
/// A stack is identified by its 64-bit hash: among a quarter of a million distinct stacks the chance that any two
/// share one is below one in 500 million.
pub(crate) struct StackInterner {
    by_hash: SharedMap<u64, StackId, FixedState>,
    kept: Mutex<KeptStacks>,
    /// The number of stacks without room.
    omitted: AtomicU64,
}

/// The stored stacks, innermost address first.
pub(crate) struct KeptStacks {
    /// Has room for the largest number of pieces, so that it never grows.
    pieces: Vec<Vec<u64>>,
    /// For each stack from 1 on its piece, its offset there and its length. Never grows either.
    index: Vec<(u16, u16, u16)>,
    addresses: usize,
}

impl KeptStacks {
    /// Returns one more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.index.len() + 1
    }

    /// Returns the return addresses of a stack, innermost first; empty for an unknown id.
    pub(crate) fn get(&self, stack: StackId) -> &[u64] {
        let entry = stack.index().checked_sub(1).and_then(|index| self.index.get(index));
        entry.map_or(&[], |&(piece, from, len)| {
            &self.pieces[usize::from(piece)][usize::from(from)..usize::from(from) + usize::from(len)]
        })
    }

    /// Makes an empty store.
    fn new() -> Self {
        Self { pieces: Vec::with_capacity(MAX_PIECES), index: Vec::with_capacity(MAX_STACKS), addresses: 0 }
    }

    /// Returns whether there is no room for a stack of so many addresses.
    fn is_full(&self, addresses: usize) -> bool {
        self.addresses + addresses > MAX_ADDRESSES
            || self.index.len() >= MAX_STACKS
            || addresses > u16::MAX.into()
            || self.needs_piece(addresses) && self.pieces.len() >= MAX_PIECES
    }

    /// Returns whether a stack of so many addresses needs another piece.
    fn needs_piece(&self, addresses: usize) -> bool {
        self.pieces.last().is_none_or(|piece| piece.len() + addresses > PIECE)
    }

    /// Stores one more stack, for which there is room in the last piece.
    fn push(&mut self, outermost_first: &[u64]) -> StackId {
        let piece = self.pieces.len() - 1;
        let addresses = &mut self.pieces[piece];
        let (from, len) = (addresses.len() as u16, outermost_first.len() as u16);
        addresses.extend(outermost_first.iter().rev());
        self.addresses += outermost_first.len();
        self.index.push((piece as u16, from, len));
        StackId(self.index.len() as u32)
    }
}

impl StackInterner {
    /// Makes an empty table.
    pub(crate) fn new() -> Self {
        Self {
            by_hash: SharedMap::new(FixedState::default(), 64),
            kept: Mutex::new(KeptStacks::new()),
            omitted: AtomicU64::new(0),
        }
    }

    /// Returns the id of a stack (outermost first) seen before, by its hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<StackId> {
        self.by_hash.get(&hash)
    }

    /// Returns the id of a stack, which is stored innermost first, the order of reports; none if there is no room for
    /// it. Memory is allocated without a lock held.
    #[cold]
    pub(crate) fn insert(&self, hash: u64, outermost_first: &[u64]) -> StackId {
        let mut piece = None;
        loop {
            if let Some(stack) = self.find(hash) {
                return stack;
            }
            let mut kept = self.kept();
            if kept.is_full(outermost_first.len()) {
                drop(kept);
                // The last stack that fitted may have been this one.
                if let Some(stack) = self.find(hash) {
                    return stack;
                }
                self.omitted.fetch_add(1, Ordering::Relaxed);
                return StackId::NONE;
            }
            let needs_piece = kept.needs_piece(outermost_first.len());
            if needs_piece && piece.is_none() {
                drop(kept);
                piece = Some(Vec::with_capacity(PIECE));
                continue;
            }
            let mut entry = self.by_hash.entry(hash);
            // Another thread may have been faster.
            if let Some(stack) = entry.get() {
                return *stack;
            }
            if entry.is_full() {
                drop((entry, kept));
                self.by_hash.make_room(&hash);
                continue;
            }
            if needs_piece {
                kept.pieces.extend(piece);
                internal_bytes::add(PIECE * size_of::<u64>());
            }
            let stack = kept.push(outermost_first);
            entry.put(stack);
            return stack;
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, KeptStacks> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the hashes of stacks through `code`, which is no longer loaded: the same addresses will then be other
    /// code and get a new id. Returns whether there were any.
    pub(crate) fn forget_code(&self, code: &Range<u64>) -> bool {
        let kept = self.kept();
        let goes_through = |id: &StackId| kept.get(*id).iter().any(|address| code.contains(address));
        let mut any = false;
        self.by_hash.retain(|_, id| {
            let gone = goes_through(id);
            any |= gone;
            !gone
        });
        any
    }

    /// Returns how often a stack was omitted because there was no room.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the tables that [`internal_bytes`] does not count.
    pub(crate) fn table_bytes(&self) -> usize {
        let index_bytes = self.kept().index.capacity() * size_of::<(u16, u16, u16)>();
        self.by_hash.capacity() * (size_of::<(u64, StackId)>() + 1) + index_bytes
    }

    /// Returns the return addresses of a stack, innermost first.
    pub(crate) fn addresses(&self, stack: StackId) -> Vec<u64> {
        // Room is made before the table is locked.
        let mut addresses = Vec::with_capacity(u16::MAX.into());
        addresses.extend_from_slice(self.kept().get(stack));
        addresses.shrink_to_fit();
        addresses
    }

    /// Returns whether a stack has any of these return addresses.
    pub(crate) fn goes_through(&self, stack: StackId, addresses: &[u64]) -> bool {
        self.kept().get(stack).iter().any(|address| addresses.contains(address))
    }

    /// Returns all stacks so far.
    pub(crate) fn table(&self) -> StackTable {
        let mut table = StackTable::default();
        // Room is made before the table is locked, for the stacks that there are now.
        let (stacks, addresses) = {
            let kept = self.kept();
            (kept.len(), kept.addresses)
        };
        table.offsets.reserve_exact(stacks);
        table.addresses.reserve_exact(addresses);
        let kept = self.kept();
        for id in 1..stacks {
            table.push(kept.get(StackId(id as u32)));
        }
        table
    }

    /// Fills `copy` with the stacks from `first` on, numbered there from 1 on, but not many more than `most` and not
    /// much more than a megabyte of them.
    pub(crate) fn copy(&self, first: StackId, most: usize, copy: &mut StackTable) {
        const MAX_COPIED: usize = 128 << 10;
        copy.offsets.truncate(2);
        copy.addresses.clear();
        // Room is made before the table is locked.
        copy.offsets.reserve(most);
        copy.addresses.reserve(MAX_COPIED);
        let kept = self.kept();
        let ids = first.index()..kept.len().min(first.index() + most);
        for id in ids {
            let addresses = kept.get(StackId(id as u32));
            if copy.addresses.len() + addresses.len() > MAX_COPIED && copy.len() > 1 {
                break;
            }
            copy.push(addresses);
        }
    }
}

/// Returns the hash by which stacks are identified.
#[inline(always)]
pub(crate) fn hash(addresses: &[u64]) -> u64 {
    const STATE: FixedState = FixedState::with_seed(0x6d65_6d74_7261_636b);
    STATE.hash_one(addresses)
}

const CACHE_SLOTS: usize = 4096;

/// One thread's newest stacks, found by hash with one load.
pub(crate) struct StackCache {
    slots: Box<[(u64, StackId)]>,
}

impl StackCache {
    /// Makes an empty cache; allocates 64 KB.
    pub(crate) fn new() -> Self {
        Self { slots: vec![(0, StackId::NONE); CACHE_SLOTS].into_boxed_slice() }
    }

    /// Removes all stacks.
    pub(crate) fn clear(&mut self) {
        self.slots.fill((0, StackId::NONE));
    }

    /// Returns the id stored for `hash`.
    #[inline(always)]
    pub(crate) fn get(&self, hash: u64) -> Option<StackId> {
        let slot = self.slots[hash as usize % CACHE_SLOTS];
        (slot.0 == hash).then_some(slot.1)
    }

    /// Stores an id, replacing the one in its slot.
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
    fn stacks_beyond_the_bound_are_counted_and_take_no_memory() {
        let interner = StackInterner::new();
        let stack = |number: u64| [number; 250];
        let mut kept = 0;
        for number in 1.. {
            let stack = stack(number);
            if interner.insert(hash(&stack), &stack).is_none() {
                break;
            }
            kept += 1;
        }
        assert!(kept * 250 <= MAX_ADDRESSES && (kept + 300) * 250 > MAX_ADDRESSES);
        let bytes = interner.table_bytes();
        for number in 0..10_000 {
            let stack = stack(u64::MAX - number);
            assert!(interner.insert(hash(&stack), &stack).is_none());
        }
        assert_eq!((interner.omitted(), interner.table_bytes()), (10_001, bytes));
        assert_eq!(interner.table().get(StackId(kept as u32)), [kept as u64; 250]);
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
