//! Interns strings and stacks while a file is read. Each table has an index that finds equal rows. The indexes are
//! dropped along with the reader, whereas the tables become part of the snapshot.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::vocabulary;
use memtrack_model::snapshot::{FrameId, NamedStacks, StringId, StringTable};
use std::hash::{BuildHasher, Hash};

/// Hashes with a fixed seed, because equal files must produce equal tables. The cost of a file that was crafted to
/// cause collisions is bounded by its size.
#[inline]
pub(super) fn hash_of(value: impl Hash) -> u64 {
    FixedState::with_seed(0x6d65_6d74_7261_636b).hash_one(value)
}

/// Returns the size of an index in bytes. At most seven of eight slots are filled, and each slot has a control byte.
pub(super) fn table_bytes<T>(table: &HashTable<T>) -> u64 {
    (table.capacity() * 8 / 7 * (size_of::<T>() + 1)) as u64
}

/// Distinct strings, compared bytewise.
#[derive(Debug)]
pub struct StringInterner {
    /// The strings interned so far, starting with the [`vocabulary`].
    pub table: StringTable,
    index: HashTable<(u32, u32)>,
}

impl Default for StringInterner {
    fn default() -> Self {
        let mut interner = Self { table: StringTable::default(), index: HashTable::new() };
        for word in vocabulary() {
            // `snapshot` and `free` may occur twice. Each occurrence has its own id, and lookups find the first one.
            let id = interner.table.push(word.as_bytes());
            interner.add_to_index(word.as_bytes(), id);
        }
        interner
    }
}

impl StringInterner {
    /// Returns the id of `bytes`, adding them if they are new.
    #[inline]
    pub fn intern(&mut self, bytes: &[u8]) -> StringId {
        if bytes.is_empty() {
            return StringId::EMPTY;
        }
        let hash = hash_of(bytes);
        // Half of the hash is stored with each id in order to avoid comparing different strings.
        let (table, short) = (&self.table, (hash >> 32) as u32);
        let found =
            self.index.find(hash, |&(id, other)| other == short && table.bytes(StringId(id)) == bytes);
        if let Some(&(id, _)) = found {
            return StringId(id);
        }
        let id = self.table.push(bytes);
        self.add_to_index(bytes, id);
        id
    }

    fn add_to_index(&mut self, bytes: &[u8], id: StringId) {
        let hash = hash_of(bytes);
        let table = &self.table;
        self.index
            .insert_unique(hash, (id.0, (hash >> 32) as u32), |&(id, _)| hash_of(table.bytes(StringId(id))));
    }

    /// Returns the number of bytes of memory in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.table.used_bytes() + table_bytes(&self.index)
    }
}

/// Distinct stacks of named frames, compared frame by frame.
#[derive(Debug, Default)]
pub(super) struct StackInterner {
    pub(super) table: NamedStacks,
    index: HashTable<(u32, u32)>,
}

impl StackInterner {
    /// Returns the id of a stack, adding the stack if it is new.
    #[inline]
    pub(super) fn intern(&mut self, frames: &[FrameId]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        let hash = hash_of(frames);
        let (table, short) = (&self.table, (hash >> 32) as u32);
        let found = self.index.find(hash, |&(id, other)| other == short && table.get(StackId(id)) == frames);
        if let Some(&(id, _)) = found {
            return StackId(id);
        }
        let id = self.table.push(frames.iter().copied());
        let table = &self.table;
        self.index.insert_unique(hash, (id.0, short), |&(id, _)| hash_of(table.get(StackId(id))));
        id
    }

    /// Returns the number of bytes of memory in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.table.used_bytes() + table_bytes(&self.index)
    }
}
