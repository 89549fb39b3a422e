//! A list of things that end without telling: weak pointers, each of which keeps the memory block of a dead value. The list looks
//! for them whenever it has doubled, so that it never has more than twice as many entries as were alive when it last looked,
//! and [`FEW`] more, and adding one costs the same however long it is.

use memtrack_recorder::{internal_bytes, recorder, reentry};

/// So many entries are not worth looking at.
pub(super) const FEW: usize = 256;

/// What may be dead.
pub(super) trait Mortal {
    /// Whether its value is gone.
    fn is_dead(&self) -> bool;
    /// Drops it; what belongs to the program is freed outside of memtrack's own work. The caller is inside it.
    fn let_go(self);
}

/// The list.
pub(super) struct Entries<E: Mortal> {
    entries: Vec<E>,
    /// How many there may be before it looks for dead ones.
    look_at: usize,
    /// The process that was told of the room, and how much it is.
    told: (u32, usize),
}

impl<E: Mortal> Entries<E> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), look_at: FEW, told: (0, 0) }
    }

    /// Adds one.
    #[inline]
    pub(super) fn push(&mut self, entry: E) {
        let _inside = reentry::enter();
        if self.entries.len() >= self.look_at {
            self.prune();
        }
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        self.entries.push(entry);
    }

    #[cold]
    fn grow(&mut self) {
        self.entries.reserve(FEW);
        self.tell();
    }

    /// Drops what is dead. The caller is inside memtrack's own work.
    #[cold]
    pub(super) fn prune(&mut self) {
        self.entries.extract_if(.., |entry| entry.is_dead()).for_each(Mortal::let_go);
        self.look_at = 2 * self.entries.len() + FEW;
        if self.entries.capacity() > 2 * self.look_at {
            self.entries.shrink_to(self.look_at);
        }
        self.tell();
    }

    /// All of them, for a moment: [`Self::give_back`] is called with them.
    pub(super) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.entries)
    }

    /// Puts back what was taken; what was added meanwhile stays. What was dead among it is gone.
    pub(super) fn give_back(&mut self, mut taken: Vec<E>) {
        taken.append(&mut self.entries);
        self.entries = taken;
        self.look_at = 2 * self.entries.len() + FEW;
        self.tell();
    }

    /// Drops all. The caller is inside memtrack's own work.
    pub(super) fn clear(&mut self) {
        std::mem::take(&mut self.entries).into_iter().for_each(Mortal::let_go);
        self.look_at = FEW;
        self.tell();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps memtrack's books of its own memory.
    fn tell(&mut self) {
        let now = (recorder::generation(), self.entries.capacity() * size_of::<E>());
        // What a parent was told does not count in its child.
        if self.told.0 == now.0 {
            internal_bytes::subtract(self.told.1);
        }
        internal_bytes::add(now.1);
        self.told = now;
    }
}

impl<E: Mortal> Drop for Entries<E> {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.clear();
    }
}
