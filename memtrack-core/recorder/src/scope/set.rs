//! A set that only grows, of things that live forever: open addressing over links that are each filled once. Nobody ever
//! waits in it, so it stays usable in a forked child whatever the other threads were doing. Look-ups cost the same
//! however much it holds, because its users stop filling it when half of it is full.

use super::link::{Link, empty_links};
use crate::zeroed::Zeroed;

/// The set. There must always be an empty place left: see above.
pub(super) struct Set<T: 'static> {
    places: Zeroed<Link<T>>,
}

/// Where something that is not in the set would go.
#[derive(Clone, Copy)]
pub(super) struct Vacant(usize);

impl<T: Sync> Set<T> {
    /// An empty set of `places`, a power of two.
    pub(super) fn new(places: usize) -> Self {
        debug_assert!(places.is_power_of_two());
        Self { places: empty_links(places) }
    }

    /// What has that hash and `is` what is looked for.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Result<&'static T, Vacant> {
        self.find_from(hash as usize, is)
    }

    #[inline]
    fn find_from(&self, mut place: usize, is: impl Fn(&T) -> bool) -> Result<&'static T, Vacant> {
        loop {
            place &= self.places.len() - 1;
            match self.places[place].get() {
                Some(found) if is(found) => return Ok(found),
                Some(_) => place += 1,
                None => return Err(Vacant(place)),
            }
        }
    }

    /// Puts `new` into the place where it was missed. Where another thread has put the same there first, that is returned.
    pub(super) fn insert(&self, vacant: Vacant, new: &'static T, is: impl Fn(&T) -> bool) -> &'static T {
        let mut place = vacant.0;
        loop {
            match self.places[place].fill(new) {
                Ok(()) => return new,
                Err(winner) if is(winner) => return winner,
                // Another thing: the next empty place, unless the same has come there meanwhile.
                Err(_) => match self.find_from(place + 1, &is) {
                    Ok(found) => return found,
                    Err(Vacant(next)) => place = next,
                },
            }
        }
    }
}
