//! A set that only grows, of values that live for ever: open addressing over links that are each filled once.
//! It is lock-free, so it stays usable in a forked child, in any state of the other threads. Look-ups cost the
//! same for any size, because its users stop filling it when half of it is full.

use super::link::{Link, empty_links};
use crate::zeroed::Zeroed;

/// The set. One slot must always be empty: see above.
pub(super) struct Set<T: 'static> {
    slots: Zeroed<Link<T>>,
}

/// The slot for a value that is not in the set.
#[derive(Clone, Copy)]
pub(super) struct Vacant(usize);

impl<T: Sync> Set<T> {
    /// Makes an empty set with that number of slots, a power of two.
    pub(super) fn new(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two());
        Self { slots: empty_links(slots) }
    }

    /// Returns the value with that hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Result<&'static T, Vacant> {
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

    /// Stores `new` in the slot where it was missing. If another thread has stored an equal value first, returns
    /// that.
    pub(super) fn insert(&self, vacant: Vacant, new: &'static T, is: impl Fn(&T) -> bool) -> &'static T {
        let mut slot = vacant.0;
        loop {
            match self.slots[slot].fill(new) {
                Ok(()) => return new,
                Err(winner) if is(winner) => return winner,
                // Another value: try the next empty slot, unless an equal value was stored meanwhile.
                Err(_) => match self.find_from(slot + 1, &is) {
                    Ok(found) => return found,
                    Err(Vacant(next)) => slot = next,
                },
            }
        }
    }
}
