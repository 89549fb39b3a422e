//! The places at which a program makes tasks: (name, file, line), interned and numbered. The set only grows and is lock-free, as
//! that of scopes; a forked child keeps it. The counts of tasks are of the session.

use crate::events::ForkCell;
use crate::reentry;
use crate::scope::{Link, Set, empty_links, intern_name};
use crate::zeroed::Zeroed;
use memtrack_model::snapshot::TaskPlace;
use std::hash::{BuildHasher, Hasher};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The exclusive upper bound on the numbers of places.
const MAX_PLACES: u32 = 1 << 12;
/// The number of the place that stands in for places that did not fit. Number 0 is outside all tasks.
const OTHER: u32 = 1;

/// The maximum memory of all places and counts. Names are bounded with those of scopes.
#[cfg(test)]
pub(super) const MAX_BYTES: usize =
    MAX_PLACES as usize * (size_of::<Place>() + 3 * size_of::<Link<Place>>() + size_of::<[AtomicU64; 2]>());

struct Place {
    number: u32,
    name: &'static str,
    file: &'static str,
    line: u32,
}

impl Place {
    /// Returns whether this is the place. Interned texts are the same if their addresses are.
    fn is(&self, name: &'static str, file: &'static str, line: u32) -> bool {
        self.line == line && std::ptr::eq(self.file, file) && std::ptr::eq(self.name, name)
    }
}

struct Places {
    set: Set<Place>,
    by_number: Zeroed<Link<Place>>,
}

/// The set is never emptied, because futures keep the numbers of places in a forked child.
static PLACES: ForkCell<Places> = ForkCell::inherited(|| {
    let count = MAX_PLACES as usize;
    Places { set: Set::new(2 * count), by_number: empty_links(count) }
});
static NEXT: AtomicU32 = AtomicU32::new(OTHER + 1);

/// The numbers of tasks of each place that have begun and ended.
struct Counts(Box<[[AtomicU64; 2]]>);

static COUNTS: ForkCell<Counts> = ForkCell::new(|| {
    crate::internal_bytes::add(MAX_PLACES as usize * size_of::<[AtomicU64; 2]>());
    Counts((0..MAX_PLACES).map(|_| Default::default()).collect())
});

/// Returns the number of a place. Allocates only if it is new.
pub(super) fn number_of(name: &str, location: &Location<'_>) -> u32 {
    let (name, file, line) = (intern_name(name), intern_name(location.file()), location.line());
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write_usize(name.as_ptr().addr());
    hasher.write_usize(file.as_ptr().addr());
    hasher.write_u32(line);
    let places = PLACES.get();
    let is = |place: &Place| place.is(name, file, line);
    match places.set.find(hasher.finish(), is) {
        Ok(place) => place.number,
        Err(vacant) => {
            let _inside = reentry::enter();
            let next = |number| (number < MAX_PLACES).then_some(number + 1);
            let Ok(number) = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else {
                return OTHER;
            };
            crate::internal_bytes::add_inherited(size_of::<Place>());
            let place =
                places.set.insert(vacant, Box::leak(Box::new(Place { number, name, file, line })), is);
            // A thread that loses a race wastes a number. The place has the number before an event can refer to it.
            let _ = places.by_number[place.number as usize].fill(place);
            place.number
        }
    }
}

/// Counts a task that begins at a place.
pub(super) fn count_begun(place: usize) {
    COUNTS.get().0[place][0].fetch_add(1, Ordering::Relaxed);
}

/// Counts a task of a place that ends.
pub(super) fn count_ended(place: usize) {
    COUNTS.get().0[place][1].fetch_add(1, Ordering::Relaxed);
}

/// Returns all places with their counts.
pub(super) fn all() -> Vec<TaskPlace> {
    let end = NEXT.load(Ordering::Acquire).min(MAX_PLACES) as usize;
    let (places, counts) = (PLACES.get(), COUNTS.get());
    (0..end)
        .map(|number| {
            let [begun, ended] = [0, 1].map(|which| counts.0[number][which].load(Ordering::Relaxed));
            let counts = TaskPlace { begun, ended, ..TaskPlace::default() };
            match places.by_number[number].get() {
                Some(place) => TaskPlace {
                    name: place.name.to_owned(),
                    file: place.file.to_owned(),
                    line: place.line,
                    ..counts
                },
                None => counts,
            }
        })
        .collect()
}

/// Sets all counts to 0.
pub(super) fn clear_counts() {
    if COUNTS.is_made() {
        COUNTS.get().0.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}
