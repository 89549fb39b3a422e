//! A list of weak pointers, which end without notice and each keep the memory block of a dead value. The list
//! scans for dead entries whenever it has doubled, so that it never has more than twice as many entries as
//! were alive at the last scan, plus [`MIN_SCAN`], and the amortized cost of adding an entry does not depend on
//! the length.

use memtrack_recorder::{internal_bytes, recorder, reentry};

/// The number of entries below which a scan is not worthwhile.
pub(super) const MIN_SCAN: usize = 256;

/// An entry whose value may be dead.
pub(super) trait Mortal {
    /// Returns whether the value is gone.
    fn is_dead(&self) -> bool;
    /// Drops the entry; memory that belongs to the program is freed outside memtrack's own work. The caller
    /// is inside it.
    fn let_go(self);
}

/// A list that drops its dead entries.
pub(super) struct Entries<E: Mortal> {
    entries: Vec<E>,
    /// The number of entries at which it scans for dead ones.
    scan_at: usize,
    /// The process in which the list's memory was last accounted for, and its bytes.
    accounted: (u32, usize),
}

impl<E: Mortal> Entries<E> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), scan_at: MIN_SCAN, accounted: (0, 0) }
    }

    /// Adds an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: E) {
        let _inside = reentry::enter();
        if self.entries.len() >= self.scan_at {
            self.prune();
        }
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        self.entries.push(entry);
    }

    #[cold]
    fn grow(&mut self) {
        self.entries.reserve(MIN_SCAN);
        self.account();
    }

    /// Drops dead entries. The caller is inside memtrack's own work.
    #[cold]
    pub(super) fn prune(&mut self) {
        self.entries.extract_if(.., |entry| entry.is_dead()).for_each(Mortal::let_go);
        self.scan_at = 2 * self.entries.len() + MIN_SCAN;
        if self.entries.capacity() > 2 * self.scan_at {
            self.entries.shrink_to(self.scan_at);
        }
        self.account();
    }

    /// Takes all entries out for a moment; [`Self::restore`] must be called with them.
    pub(super) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.entries)
    }

    /// Puts back the entries that were taken; entries added in the meantime stay. Dead entries among the
    /// taken ones have been dropped.
    pub(super) fn restore(&mut self, mut taken: Vec<E>) {
        taken.append(&mut self.entries);
        self.entries = taken;
        self.scan_at = 2 * self.entries.len() + MIN_SCAN;
        self.account();
    }

    /// Drops all entries. The caller is inside memtrack's own work.
    pub(super) fn clear(&mut self) {
        std::mem::take(&mut self.entries).into_iter().for_each(Mortal::let_go);
        self.scan_at = MIN_SCAN;
        self.account();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Accounts for the list's memory as memtrack's own.
    fn account(&mut self) {
        let now = (recorder::generation(), self.entries.capacity() * size_of::<E>());
        // A parent's accounting does not count in its child.
        if self.accounted.0 == now.0 {
            internal_bytes::subtract(self.accounted.1);
        }
        internal_bytes::add(now.1);
        self.accounted = now;
    }
}

impl<E: Mortal> Drop for Entries<E> {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.clear();
    }
}
