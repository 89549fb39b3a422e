//! The memo, which holds the values that a pickle refers to by number.

use crate::pytorch::read::machine::cell::Cell;

/// The slots of the memo.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    slots: Vec<Cell>,
    /// The number of slots that have been set. This is also the next slot that MEMOIZE fills.
    count: usize,
}

impl Memo {
    /// Returns the value in a slot, or `None` if it was never set.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<Cell> {
        self.slots.get(slot).copied().filter(|&value| value != Cell::UNSET)
    }

    /// Sets the next slot. Returns whether the slot already had a value.
    #[inline]
    pub(crate) fn append(&mut self, value: Cell) -> bool {
        self.set(self.count, value)
    }

    /// Sets a slot. Returns whether the slot already had a value, which does not happen in files from normal
    /// writers.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, value: Cell) -> bool {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Cell::UNSET);
        }
        let again = std::mem::replace(&mut self.slots[slot], value) != Cell::UNSET;
        self.count += usize::from(!again);
        again
    }

    /// Returns whether the next `slots` slots to be filled by MEMOIZE are empty.
    #[inline]
    pub(crate) fn has_room(&self, slots: usize) -> bool {
        let behind = self.slots.get(self.count..).unwrap_or_default();
        behind.iter().take(slots).all(|&value| value == Cell::UNSET)
    }

    /// Returns the number of bytes of memory in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        8 * self.slots.capacity() as u64
    }
}
