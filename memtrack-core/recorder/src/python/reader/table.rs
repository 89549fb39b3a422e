//! The numbers of locations, by which recorded stacks refer to them. A location is reported to the command before a
//! stack can contain its number. Each process has its own table: a forked child reports its locations again.
//!
//! No lock is taken. Two threads that find the same new location at the same time may give it two numbers, which does
//! no harm.
#![allow(unsafe_code)]

use super::interpreter::active;
use super::location::Place;
use crate::events::ForkCell;
use crate::shared_memory::log::Record;
use crate::shared_memory::{Counter, arena, count};
use crate::zeroed::Zeroed;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The maximum number of locations. Frames at further ones have no name, and are counted.
const MAX_LOCATIONS: u32 = 1 << 16;

/// The number of slots for locations by their place in a code object (512 KiB), a cache, and by content (1 MiB).
const PLACES: usize = 1 << 16;
const CONTENTS: usize = 1 << 17;

/// The bits of a slot that hold the number plus one; the others hold the upper bits of the hash. The lower bits of the hash
/// select the slot.
const NUMBER_BITS: u32 = 17;

/// The maximum memory of a table, in bytes.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = (PLACES + CONTENTS) * size_of::<AtomicU64>();

/// The locations of one process.
pub(super) struct Locations {
    by_place: Zeroed<AtomicU64>,
    by_content: Zeroed<AtomicU64>,
    count: AtomicU32,
}

static LOCATIONS: ForkCell<Locations> = ForkCell::new(Locations::begin);

/// Returns the table of this process.
pub(super) fn of_this_process() -> &'static Locations {
    LOCATIONS.get()
}

/// Returns the content of a slot.
fn slot(hash: u64, number: u32) -> u64 {
    hash >> NUMBER_BITS << NUMBER_BITS | u64::from(number + 1)
}

/// Returns the number in a slot, if the slot belongs to this hash.
fn number_in(slot: u64, hash: u64) -> Option<u32> {
    let number = slot & ((1 << NUMBER_BITS) - 1);
    (number != 0 && slot >> NUMBER_BITS == hash >> NUMBER_BITS).then(|| number as u32 - 1)
}

impl Locations {
    /// Creates an empty table, and reports the interpreter to the command.
    fn begin() -> Self {
        if let Some(interpreter) = active() {
            interpreter.report();
        }
        Self::new()
    }

    fn new() -> Self {
        // SAFETY: zero is a valid atomic number.
        let (by_place, by_content) = unsafe { (Zeroed::new(PLACES), Zeroed::new(CONTENTS)) };
        Self { by_place, by_content, count: AtomicU32::new(0) }
    }

    /// Returns the number that was stored for a place in a code object.
    pub(super) fn number_at(&self, place: u64) -> Option<u32> {
        number_in(self.by_place[place as usize % PLACES].load(Ordering::Acquire), place)
    }

    /// Stores that a place has no location, and returns the number for that.
    pub(super) fn set_without_location(&self, place: u64) -> u32 {
        self.set(place, 0)
    }

    fn set(&self, place: u64, number: u32) -> u32 {
        self.by_place[place as usize % PLACES].store(slot(place, number), Ordering::Release);
        number
    }

    /// Returns the number of a location, and stores it for a place in a code object. Returns 0 if there is no room.
    pub(super) fn add(&self, place: u64, found: &Place) -> u32 {
        const STATE: FixedState = FixedState::with_seed(0x7079_7468_6f6e_2121);
        let hash = STATE.hash_one((&found.file, &found.function, found.line));
        let number = self.number_of(hash, |number| {
            let record =
                Record::PythonLocation(number, found.line, (&found.file).into(), (&found.function).into());
            arena().is_some_and(|arena| arena.append(&record))
        });
        match number {
            Some(number) => self.set(place, number),
            None => {
                count(Counter::OmittedPythonFrames, 1);
                0
            }
        }
    }

    /// Returns the number of the location with this hash. If it is new, `report` must report its number to the command. Returns
    /// `None` if there is no room.
    fn number_of(&self, hash: u64, report: impl FnOnce(u32) -> bool) -> Option<u32> {
        let mut report = Some(report);
        let mut new = None;
        // At most half of the slots are ever used, so there is a free one.
        for step in 0..CONTENTS {
            let place = &self.by_content[(hash as usize).wrapping_add(step) % CONTENTS];
            let found = place.load(Ordering::Acquire);
            if let Some(number) = number_in(found, hash) {
                return Some(number);
            }
            if found != 0 {
                continue;
            }
            if let Some(report) = report.take() {
                let take = |count: u32| (count < MAX_LOCATIONS).then_some(count + 1);
                let number = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()? + 1;
                // Reported before another thread can use the number.
                new = Some(number).filter(|&number| report(number));
            }
            let new = new?;
            if place.compare_exchange(0, slot(hash, new), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(new);
            }
            // Another thread has taken the slot: for this location or for another one.
            if let Some(number) = number_in(place.load(Ordering::Acquire), hash) {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_locations_share_a_number_that_is_reported_once() {
        let table = Locations::new();
        let mut reported = Vec::new();
        for hash in [77, 1 << 60, 77, 77 | 1 << 50] {
            table.number_of(hash, |number| {
                reported.push(number);
                true
            });
        }
        assert_eq!(reported, [1, 2, 3]);
        assert_eq!(table.number_of(77, |_| unreachable!("it is known")), Some(1));
        assert_eq!(table.number_of(5, |_| false), None, "the command does not know it");
    }

    #[test]
    fn locations_beyond_the_bound_have_no_number() {
        let table = Locations::new();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 1..=u64::from(MAX_LOCATIONS) {
            assert_eq!(table.number_of(hash(number), |_| true), Some(number as u32));
        }
        assert_eq!(table.number_of(hash(1 << 40), |_| true), None);
        assert_eq!(table.number_of(hash(9), |_| true), Some(9));
    }

    #[test]
    fn place_keeps_its_newest_number() {
        let table = Locations::new();
        let place = 0x1234_5678_9abc_def0;
        assert_eq!(table.number_at(place), None);
        table.set(place, 7);
        assert_eq!(table.number_at(place), Some(7));
        assert_eq!(table.number_at(place ^ 1 << 40), None);
        assert_eq!(table.set_without_location(place), 0);
        assert_eq!(table.number_at(place), Some(0));
    }
}
