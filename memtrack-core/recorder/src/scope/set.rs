//! A set that only grows and whose values are never freed. It is a hash table with open addressing, in which each link
//! is filled once. It is lock-free, so it can be used in a forked child no matter what the parent's other threads were
//! doing. Look-ups cost the same however many values there are, because the callers fill at most half of the slots.

use super::link::{Link, empty_links};
use crate::zeroed::Zeroed;

/// The set. At least one slot must always be empty, so that searches end.
pub(crate) struct Set<T: 'static> {
    slots: Zeroed<Link<T>>,
}

/// An empty slot in which a missing value can be stored.
#[derive(Clone, Copy)]
pub(crate) struct Vacant(usize);

impl<T: Sync> Set<T> {
    /// Creates an empty set with this many slots, which must be a power of two.
    pub(crate) fn new(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two());
        Self { slots: empty_links(slots) }
    }

    /// Returns the value with this hash for which `is` returns true, or the vacant slot for it.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Result<&'static T, Vacant> {
        self.find_from(hash as usize, is)
    }

    #[inline]
    fn find_from(&self, mut slot: usize, is: impl Fn(&T) -> bool) -> Result<&'static T, Vacant> {
        loop {
            slot &= self.slots.len() - 1;
            match self.slots[slot].get() {
                Some(found) if is(found) => return Ok(found),
                Some(_) => slot += 1,
                None => return Err(Vacant(slot)),
            }
        }
    }

    /// Stores `new` in a vacant slot and returns it, or returns an equal value that another thread stored first.
    pub(crate) fn insert(&self, vacant: Vacant, new: &'static T, is: impl Fn(&T) -> bool) -> &'static T {
        let mut slot = vacant.0;
        loop {
            match self.slots[slot].fill(new) {
                Ok(()) => return new,
                Err(winner) if is(winner) => return winner,
                // Another value took the slot. Try the next empty one, unless an equal value has been stored in the
                // meantime.
                Err(_) => match self.find_from(slot + 1, &is) {
                    Ok(found) => return found,
                    Err(Vacant(next)) => slot = next,
                },
            }
        }
    }
}
