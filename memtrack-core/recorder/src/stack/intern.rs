//! Assigns an id to each distinct stack. All threads share the table, and each has a small cache in front of it, so
//! that a repeated stack costs a hash and a comparison.

use crate::internal_bytes;
use crate::shared_map::SharedMap;
use foldhash::fast::FixedState;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::StackTable;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The maximum number of addresses (24 MiB) and of stacks (about 12 MiB with their index). Events with further stacks
/// are recorded without a stack, and their number is reported.
const MAX_ADDRESSES: usize = 3 << 20;
const MAX_STACKS: usize = 1 << 18;

/// The number of addresses in a piece (512 KiB). Addresses are stored in pieces so that growing copies nothing. No
/// stack is split between two pieces.
const PIECE_ADDRESSES: usize = 1 << 16;

/// The maximum number of pieces. Stacks have at most a few hundred addresses, so little of a piece is unused at its
/// end.
const MAX_PIECES: usize = MAX_ADDRESSES / PIECE_ADDRESSES + 1;

/// The maximum number of bytes that the tables take up, given that the table of hashes may just have doubled.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = MAX_PIECES * PIECE_ADDRESSES * size_of::<u64>()
    + (MAX_STACKS * 2 + MAX_STACKS * 2 / 7) * (size_of::<(u64, StackId)>() + 1)
    + MAX_STACKS * size_of::<(u16, u16, u16)>();

/// All distinct stacks of the process.
///
/// A stack is identified by its 64-bit hash. Among a quarter of a million distinct stacks, the probability that any two
/// have the same hash is less than one in 500 million.
pub(crate) struct StackInterner {
    by_hash: SharedMap<u64, StackId, FixedState>,
    stored: Mutex<StoredStacks>,
    /// The number of times a stack was omitted because there was no room for it.
    omitted: AtomicU64,
}

/// The stored stacks, innermost address first.
pub(crate) struct StoredStacks {
    /// The pieces, with capacity for the maximum number of them, so that the vector never grows.
    pieces: Vec<Vec<u64>>,
    /// For each stack, from id 1 on, its piece, its offset in the piece and its length. This never grows either.
    index: Vec<(u16, u16, u16)>,
    addresses: usize,
}

impl StoredStacks {
    /// Returns the largest id plus one.
    pub(crate) fn len(&self) -> usize {
        self.index.len() + 1
    }

    /// Returns a stack's return addresses, innermost first, or an empty slice for an unknown id.
    pub(crate) fn get(&self, stack: StackId) -> &[u64] {
        let entry = stack.index().checked_sub(1).and_then(|index| self.index.get(index));
        entry.map_or(&[], |&(piece, from, len)| {
            &self.pieces[usize::from(piece)][usize::from(from)..usize::from(from) + usize::from(len)]
        })
    }

    /// Creates an empty store.
    fn new() -> Self {
        Self { pieces: Vec::with_capacity(MAX_PIECES), index: Vec::with_capacity(MAX_STACKS), addresses: 0 }
    }

    /// Returns whether there is no room for a stack of this many addresses.
    fn is_full(&self, addresses: usize) -> bool {
        self.addresses + addresses > MAX_ADDRESSES
            || self.index.len() >= MAX_STACKS
            || addresses > u16::MAX.into()
            || self.needs_piece(addresses) && self.pieces.len() >= MAX_PIECES
    }

    /// Returns whether a stack of this many addresses needs another piece.
    fn needs_piece(&self, addresses: usize) -> bool {
        self.pieces.last().is_none_or(|piece| piece.len() + addresses > PIECE_ADDRESSES)
    }

    /// Stores another stack. There must be room for it in the last piece.
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
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self {
            by_hash: SharedMap::new(FixedState::default(), 64),
            stored: Mutex::new(StoredStacks::new()),
            omitted: AtomicU64::new(0),
        }
    }

    /// Returns the id of the stored stack with this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<StackId> {
        self.by_hash.get(&hash)
    }

    /// Stores a stack, innermost address first as in reports, and returns its id, or [`StackId::NONE`] if there is no
    /// room for it. Memory is allocated while no lock is held.
    #[cold]
    pub(crate) fn insert(&self, hash: u64, outermost_first: &[u64]) -> StackId {
        let mut piece = None;
        loop {
            if let Some(stack) = self.find(hash) {
                return stack;
            }
            let mut stored = self.lock();
            if stored.is_full(outermost_first.len()) {
                drop(stored);
                // Another thread may have stored this stack as the last one that fit.
                if let Some(stack) = self.find(hash) {
                    return stack;
                }
                self.count_omitted();
                return StackId::NONE;
            }
            let needs_piece = stored.needs_piece(outermost_first.len());
            if needs_piece && piece.is_none() {
                drop(stored);
                piece = Some(Vec::with_capacity(PIECE_ADDRESSES));
                continue;
            }
            let mut entry = self.by_hash.entry(hash);
            // Another thread may have stored the stack in the meantime.
            if let Some(stack) = entry.get() {
                return *stack;
            }
            if entry.is_full() {
                drop((entry, stored));
                self.by_hash.make_room(&hash);
                continue;
            }
            #[cfg(target_os = "linux")]
            let log = {
                use crate::shared_memory::{arena, is_connected, log_bytes_of_stack};
                let log = arena().and_then(|arena| arena.try_lock_log(log_bytes_of_stack(outermost_first)));
                if log.is_none() && is_connected() {
                    drop((entry, stored));
                    // Without room in the log, the command would not know the stack.
                    if !arena().is_some_and(|arena| arena.make_room(log_bytes_of_stack(outermost_first))) {
                        self.count_omitted();
                        return StackId::NONE;
                    }
                    continue;
                }
                log
            };
            if needs_piece {
                stored.pieces.extend(piece);
                internal_bytes::add(PIECE_ADDRESSES * size_of::<u64>());
            }
            let stack = stored.push(outermost_first);
            #[cfg(target_os = "linux")]
            if let Some(mut log) = log {
                // Log the stack before another thread can use its id.
                log.append_stack(stack, outermost_first);
            }
            entry.insert(stack);
            return stack;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoredStacks> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the hashes of stacks that go through `code`, which is no longer loaded. If a stack with the same
    /// addresses occurs again, it goes through other code and gets a new id. Returns whether any hashes were removed.
    pub(crate) fn forget_code(&self, code: &Range<u64>) -> bool {
        let stored = self.lock();
        let goes_through = |id: &StackId| stored.get(*id).iter().any(|address| code.contains(address));
        let mut any = false;
        self.by_hash.retain(|_, id| {
            let is_removed = goes_through(id);
            any |= is_removed;
            !is_removed
        });
        any
    }

    fn count_omitted(&self) {
        self.omitted.fetch_add(1, Ordering::Relaxed);
        #[cfg(target_os = "linux")]
        crate::shared_memory::count(crate::shared_memory::Counter::OmittedStacks, 1);
    }

    /// Returns the number of times a stack was omitted because there was no room.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of the tables that [`internal_bytes`] does not count.
    pub(crate) fn table_bytes(&self) -> usize {
        let index_bytes = self.lock().index.capacity() * size_of::<(u16, u16, u16)>();
        self.by_hash.capacity() * (size_of::<(u64, StackId)>() + 1) + index_bytes
    }

    /// Returns the return addresses of a stack, innermost first.
    pub(crate) fn addresses(&self, stack: StackId) -> Vec<u64> {
        // Allocate the memory before locking the table.
        let mut addresses = Vec::with_capacity(u16::MAX.into());
        addresses.extend_from_slice(self.lock().get(stack));
        addresses.shrink_to_fit();
        addresses
    }

    /// Returns whether a stack contains any of these return addresses.
    pub(crate) fn goes_through(&self, stack: StackId, addresses: &[u64]) -> bool {
        self.lock().get(stack).iter().any(|address| addresses.contains(address))
    }

    /// Returns all stacks so far.
    pub(crate) fn table(&self) -> StackTable {
        let mut table = StackTable::default();
        // Allocate the memory for the stacks that exist now, before locking the table.
        let (stacks, addresses) = {
            let stored = self.lock();
            (stored.len(), stored.addresses)
        };
        table.offsets.reserve_exact(stacks);
        table.addresses.reserve_exact(addresses);
        let stored = self.lock();
        for id in 1..stacks {
            table.push(stored.get(StackId(id as u32)));
        }
        table
    }

    /// Fills `copy` with the stacks from `first` on. Their ids in the copy start at 1. Copies at most `max_stacks` stacks,
    /// and not much more than a megabyte.
    pub(crate) fn copy(&self, first: StackId, max_stacks: usize, copy: &mut StackTable) {
        const MAX_COPIED_ADDRESSES: usize = 128 << 10;
        copy.offsets.truncate(2);
        copy.addresses.clear();
        // Allocate the memory before locking the table.
        copy.offsets.reserve(max_stacks);
        copy.addresses.reserve(MAX_COPIED_ADDRESSES);
        let stored = self.lock();
        let ids = first.index()..stored.len().min(first.index() + max_stacks);
        for id in ids {
            let addresses = stored.get(StackId(id as u32));
            if copy.addresses.len() + addresses.len() > MAX_COPIED_ADDRESSES && copy.len() > 1 {
                break;
            }
            copy.push(addresses);
        }
    }
}

/// Returns the hash that identifies a stack.
#[inline(always)]
pub(crate) fn hash(addresses: &[u64]) -> u64 {
    const STATE: FixedState = FixedState::with_seed(0x6d65_6d74_7261_636b);
    STATE.hash_one(addresses)
}

const CACHE_SLOTS: usize = 4096;

/// A thread's cache of stack ids by hash, in which a look-up is one load.
pub(crate) struct StackCache {
    slots: Box<[(u64, StackId)]>,
}

impl StackCache {
    /// Creates an empty cache, which allocates 64 KB.
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
    pub(crate) fn insert(&mut self, hash: u64, stack: StackId) {
        self.slots[hash as usize % CACHE_SLOTS] = (hash, stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_keeps_its_id() {
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
    fn a_cache_slot_holds_the_newest_id() {
        let mut cache = StackCache::new();
        cache.insert(5, StackId(1));
        assert_eq!(cache.get(5), Some(StackId(1)));
        cache.insert(5 + CACHE_SLOTS as u64, StackId(2));
        assert_eq!(cache.get(5), None);
    }
}
