//! A list of weak pointers. The list is not notified when a value is dropped, and a weak pointer to the value keeps its
//! memory block allocated. The list is therefore pruned whenever its length has doubled. It never has more than twice as
//! many entries as were alive when it was last pruned, plus [`MIN_PRUNED_ENTRIES`], and the amortized cost of adding an
//! entry does not depend on the length of the list.

use memtrack_recorder::{internal_bytes, recorder, reentry};

/// The number of entries below which pruning is not worthwhile.
pub(super) const MIN_PRUNED_ENTRIES: usize = 256;

/// An entry whose value may have been dropped.
pub(super) trait WeakEntry {
    /// Returns whether the value has been dropped.
    fn is_dead(&self) -> bool;
    /// Drops the entry. Memory of the program is freed outside [`reentry::enter`], so that it counts as the program's.
    /// The caller must have called [`reentry::enter`].
    fn drop_entry(self);
}

/// A list that drops its dead entries.
pub(super) struct Entries<E: WeakEntry> {
    entries: Vec<E>,
    /// The number of entries at which the list is pruned.
    prune_at: usize,
    /// The process in which the list's memory was last accounted for, and the number of bytes that were accounted for.
    accounted: (u32, usize),
}

impl<E: WeakEntry> Entries<E> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), prune_at: MIN_PRUNED_ENTRIES, accounted: (0, 0) }
    }

    /// Adds an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: E) {
        let _inside = reentry::enter();
        if self.entries.len() >= self.prune_at {
            self.prune();
        }
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        self.entries.push(entry);
    }

    #[cold]
    fn grow(&mut self) {
        self.entries.reserve(MIN_PRUNED_ENTRIES);
        self.account_memory();
    }

    /// Drops dead entries. The caller must have called [`reentry::enter`].
    #[cold]
    pub(super) fn prune(&mut self) {
        self.entries.extract_if(.., |entry| entry.is_dead()).for_each(WeakEntry::drop_entry);
        self.prune_at = 2 * self.entries.len() + MIN_PRUNED_ENTRIES;
        if self.entries.capacity() > 2 * self.prune_at {
            self.entries.shrink_to(self.prune_at);
        }
        self.account_memory();
    }

    /// Takes all entries out temporarily. The caller must pass them to [`Self::restore`].
    pub(super) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.entries)
    }

    /// Puts back the taken entries, from which the caller has removed the dead ones. Entries that were added in the
    /// meantime stay.
    pub(super) fn restore(&mut self, mut taken: Vec<E>) {
        taken.append(&mut self.entries);
        self.entries = taken;
        self.prune_at = 2 * self.entries.len() + MIN_PRUNED_ENTRIES;
        self.account_memory();
    }

    /// Drops all entries. The caller must have called [`reentry::enter`].
    pub(super) fn clear(&mut self) {
        std::mem::take(&mut self.entries).into_iter().for_each(WeakEntry::drop_entry);
        self.prune_at = MIN_PRUNED_ENTRIES;
        self.account_memory();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Accounts for the list's memory as memtrack's own.
    fn account_memory(&mut self) {
        let now = (recorder::generation(), self.entries.capacity() * size_of::<E>());
        // A forked child does not inherit its parent's accounting, so it has nothing to subtract yet.
        if self.accounted.0 == now.0 {
            internal_bytes::subtract(self.accounted.1);
        }
        internal_bytes::add(now.1);
        self.accounted = now;
    }
}

impl<E: WeakEntry> Drop for Entries<E> {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.clear();
    }
}
