//! Assigns an id to each distinct stack. All threads share the table, and each has a small cache in front of it, so
//! that a repeated stack costs a hash and a comparison.

#[cfg(test)]
use super::stored;
use super::stored::{MAX_LEN, PIECE_ADDRESSES, StoredStacks};
use crate::internal_bytes;
use crate::shared_map::SharedMap;
use crate::shared_memory::{Counter, arena, count, is_connected, log_bytes_of_stack};
use foldhash::fast::FixedState;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{OUTER_FRAMES_OMITTED, StackTable};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns the maximum number of bytes that the tables take up if their bounds are divided by `divisor`, given that the table
/// of hashes may just have doubled.
#[cfg(test)]
pub(crate) const fn max_bytes(divisor: usize) -> usize {
    let stacks = stored::MAX_STACKS / divisor;
    stored::max_bytes(divisor) + (stacks * 2 + stacks * 2 / 7) * (size_of::<(Hash, StackId)>() + 1)
}

/// The number of innermost addresses of a stack that are recorded if there is no room for the whole stack.
const SHORTENED_LEN: usize = 16;

/// A stack's hash, in halves so that a hash and an id take 12 bytes.
type Hash = [u32; 2];

/// All distinct stacks of the process.
///
/// A stack is identified by its 64-bit hash. Among half a million distinct stacks, the probability that any two have the
/// same hash is less than one in 100 million.
pub(crate) struct StackInterner {
    by_hash: SharedMap<Hash, StackId, FixedState>,
    stored: Mutex<StoredStacks>,
    /// The number of times a stack was omitted because there was no room for it.
    omitted: AtomicU64,
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
        self.by_hash.get(&halves(hash))
    }

    /// Stores a stack and returns its id. If there is no room for it, its innermost addresses are stored, followed by
    /// [`OUTER_FRAMES_OMITTED`]; if there is no room for these either, returns [`StackId::NONE`]. Memory is allocated while no
    /// lock is held.
    #[cold]
    pub(crate) fn insert(&self, hash: u64, outermost_first: &[u64]) -> StackId {
        if let Some(stack) = self.insert_if_room(hash, outermost_first, false) {
            return stack;
        }
        let shortened = shortened(outermost_first);
        self.insert_if_room(self::hash(&shortened), &shortened, true).unwrap_or_else(|| {
            self.count_omitted();
            StackId::NONE
        })
    }

    fn insert_if_room(&self, hash: u64, outermost_first: &[u64], is_shortened: bool) -> Option<StackId> {
        let mut piece = None;
        loop {
            if let Some(stack) = self.find(hash) {
                return Some(stack);
            }
            let mut stored = self.lock();
            if stored.is_full(outermost_first.len(), is_shortened) {
                drop(stored);
                // Another thread may have stored this stack as the last one that fit.
                return self.find(hash);
            }
            let needs_piece = stored.needs_piece(outermost_first.len());
            if needs_piece && piece.is_none() {
                drop(stored);
                piece = Some(Vec::with_capacity(PIECE_ADDRESSES));
                continue;
            }
            let mut entry = self.by_hash.entry(halves(hash));
            // Another thread may have stored the stack in the meantime.
            if let Some(stack) = entry.get() {
                return Some(*stack);
            }
            if entry.is_full() {
                drop((entry, stored));
                self.by_hash.make_room(&halves(hash));
                continue;
            }
            let log = arena().and_then(|arena| arena.try_lock_log(log_bytes_of_stack(outermost_first)));
            if log.is_none() && is_connected() {
                drop((entry, stored));
                // Without room in the log, the command would not know the stack.
                if !arena().is_some_and(|arena| arena.make_room(log_bytes_of_stack(outermost_first))) {
                    return None;
                }
                continue;
            }
            // If another thread has added a piece meanwhile, this one is freed when nothing is locked.
            if needs_piece && let Some(piece) = piece.take() {
                stored.add_piece(piece);
                internal_bytes::add(PIECE_ADDRESSES * size_of::<u64>());
            }
            let stack = stored.push(outermost_first);
            if let Some(mut log) = log {
                // Log the stack before another thread can use its id.
                log.append_stack(stack, outermost_first);
            }
            entry.insert(stack);
            return Some(stack);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoredStacks> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the hashes of stacks that go through `code`, which is no longer loaded. If a stack with the same
    /// addresses occurs again, it goes through other code and gets a new id. Returns whether any hashes were removed.
    pub(crate) fn forget_code(&self, code: &Range<u64>) -> bool {
        // Allocate the memory before locking the table, which may grow until then.
        let mut first_in_code = Vec::new();
        let stored = loop {
            let stored = self.lock();
            if first_in_code.len() >= stored.len() {
                break stored;
            }
            let len = stored.len() + 1024;
            drop(stored);
            first_in_code = vec![u16::MAX; len];
        };
        let mut any = false;
        if stored.find_code(code, &mut first_in_code) {
            self.by_hash.retain(|_, id| {
                let stays = first_in_code[id.index() - 1] == u16::MAX;
                any |= !stays;
                stays
            });
        }
        any
    }

    fn count_omitted(&self) {
        self.omitted.fetch_add(1, Ordering::Relaxed);
        count(Counter::OmittedStacks, 1);
    }

    /// Returns the number of times a stack was omitted because there was no room.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of the tables that [`internal_bytes`] does not count.
    pub(crate) fn table_bytes(&self) -> usize {
        self.by_hash.capacity() * (size_of::<(Hash, StackId)>() + 1) + self.lock().place_bytes()
    }

    /// Returns the return addresses of a stack, innermost first.
    pub(crate) fn addresses(&self, stack: StackId) -> Vec<u64> {
        // Allocate the memory before locking the table.
        let mut addresses = Vec::with_capacity(MAX_LEN);
        self.lock().append_to(stack, &mut addresses);
        addresses.shrink_to_fit();
        addresses
    }

    /// Returns whether a stack contains any of these return addresses.
    pub(crate) fn goes_through(&self, stack: StackId, addresses: &[u64]) -> bool {
        self.lock().contains(stack, |address| addresses.contains(address))
    }

    /// Returns all stacks so far.
    pub(crate) fn table(&self) -> StackTable {
        let mut table = StackTable::default();
        // Allocate the memory for the stacks that exist now, before locking the table.
        let (stacks, addresses) = {
            let stored = self.lock();
            (stored.len(), stored.addresses())
        };
        table.offsets.reserve_exact(stacks);
        table.addresses.reserve_exact(addresses);
        // The table is locked for short times only.
        const STACKS_AT_ONCE: usize = 1024;
        for from in (1..stacks).step_by(STACKS_AT_ONCE) {
            let stored = self.lock();
            (from..stacks.min(from + STACKS_AT_ONCE)).for_each(|id| add_to(&mut table, &stored, id));
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
        for id in first.index()..stored.len().min(first.index() + max_stacks) {
            if copy.addresses.len() + MAX_LEN > MAX_COPIED_ADDRESSES {
                break;
            }
            add_to(copy, &stored, id);
        }
    }
}

/// Appends the stack with this id to a table that has room for it.
fn add_to(table: &mut StackTable, stored: &StoredStacks, id: usize) {
    stored.append_to(StackId(id as u32), &mut table.addresses);
    table.offsets.push(table.addresses.len() as u32);
}

/// Returns the innermost addresses of a stack, outermost first. Frames of Python that have no place among the native ones yet
/// are outside of these, so they are shortened separately.
fn shortened(outermost_first: &[u64]) -> Vec<u64> {
    let innermost = |addresses: &[u64], len: usize| addresses[addresses.len().saturating_sub(len)..].to_vec();
    let mut short = vec![OUTER_FRAMES_OMITTED];
    if let Some(unmerged) = outermost_first.iter().position(|&word| word == crate::python::UNMERGED) {
        short.extend(innermost(&outermost_first[..unmerged], SHORTENED_LEN / 2));
        short.push(crate::python::UNMERGED);
        short.extend(innermost(&outermost_first[unmerged + 1..], SHORTENED_LEN / 2));
        return short;
    }
    short.extend(innermost(outermost_first, SHORTENED_LEN));
    short
}

/// Returns the halves of a hash.
#[inline(always)]
fn halves(hash: u64) -> Hash {
    [hash as u32, (hash >> 32) as u32]
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
    fn stacks_beyond_the_bound_are_shortened_then_counted_and_take_no_memory() {
        let interner = StackInterner::new();
        let stack = |number: u64| [number; 250];
        let insert = |number| interner.insert(hash(&stack(number)), &stack(number));
        let mut numbers = 1..;
        let is_whole = |id: &StackId| interner.addresses(*id).len() == 250;
        let whole = numbers.by_ref().map_while(|number| Some(insert(number)).filter(is_whole)).count();
        assert!((5_000..9_000).contains(&whole), "{whole}");
        let shortened = interner.addresses(insert(whole as u64 + 1));
        let mut expected = vec![whole as u64 + 1; SHORTENED_LEN];
        expected.push(OUTER_FRAMES_OMITTED);
        assert_eq!(shortened, expected);
        assert_eq!(interner.omitted(), 0);
        let further = numbers.by_ref().map(insert).take_while(|id| !id.is_none()).count();
        assert!(further > 20_000, "{further}");
        let bytes = interner.table_bytes();
        assert!(numbers.map(insert).take(10_000).all(StackId::is_none));
        assert_eq!((interner.omitted(), interner.table_bytes()), (10_001, bytes));
        assert_eq!(interner.table().get(StackId(whole as u32)), [whole as u64; 250]);
    }

    #[test]
    fn shortened_stack_keeps_frames_of_python_that_have_no_place_yet() {
        use crate::python::UNMERGED;
        let mut stack: Vec<u64> = (100..130).collect();
        stack.push(UNMERGED);
        stack.extend(200..230);
        let mut expected = vec![OUTER_FRAMES_OMITTED];
        expected.extend(122..130);
        expected.push(UNMERGED);
        expected.extend(222..230);
        assert_eq!(shortened(&stack), expected);
        assert_eq!(shortened(&[1, 2]), [OUTER_FRAMES_OMITTED, 1, 2]);
    }

    #[test]
    fn stacks_through_unloaded_code_are_forgotten() {
        let interner = StackInterner::new();
        let stacks: [&[u64]; 3] = [&[1, 20, 3], &[1, 20, 4], &[1, 5]];
        for stack in stacks {
            interner.insert(hash(stack), stack);
        }
        assert!(interner.forget_code(&(20..30)));
        assert_eq!(stacks.map(|stack| interner.find(hash(stack)).is_some()), [false, false, true]);
        assert!(!interner.forget_code(&(20..30)) && !interner.forget_code(&(50..60)));
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
