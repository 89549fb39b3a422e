//! Visits the values that seem to be unreachable several more times, because a thread that moves a pointer from one
//! value to another during a scan may make the scan count that pointer twice.
//!
//! Unreachable values do not change: each visit sees the same pointers and the same counts. A reachable value is
//! mistaken for an unreachable one only if every visit is deceived in the same way: each visit sees each pointer equally
//! often and in the same places, each count is the same before, during and after the visits, and no visit counts the
//! pointer through which the other thread reaches the values. The values are visited in a different random order each
//! time, and the order decides whether a pointer that moves between two values is seen in both or in neither. Each visit
//! therefore detects the change with a probability of at least one half, whatever the threads do. If threads share the
//! values, there are at least [`MIN_VISITS`] such visits, and at most [`MAX_VISITS`]. Values that belong to a single
//! thread need only one visit, because that thread is busy with the scan and moves no pointers.

use super::garbage::{self, DuplicateDetector};
use super::table::{HELD, SHARED, Table};
use foldhash::{HashMap, HashSet};
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink};
use memtrack_recorder::recorder::ticks;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The minimum number of visits to values that threads share.
const MIN_VISITS: u32 = 8;
/// The maximum number of visits.
const MAX_VISITS: u32 = 32;
/// The maximum number of values and pointers that all visits together inspect.
const MAX_ITEMS: usize = 8 << 20;

/// The result of the visits.
pub(super) struct Confirmation {
    /// The number of visits to each value, including the first.
    pub(super) visits: u32,
    /// The weak pointers in unreachable values, each given by the value that contains it and by its target.
    pub(super) weak: Vec<(u32, u32)>,
    /// The weak counts of unreachable values, except those that are 0.
    pub(super) weak_counts: HashMap<u32, usize>,
    pub(super) remarks: Vec<String>,
}

/// Marks values that only seemed to be unreachable as held.
pub(super) fn confirm(table: &mut Table) -> Confirmation {
    let mut unreachable = garbage::find_unreachable(table);
    let mut confirmed =
        Confirmation { visits: 1, weak: Vec::new(), weak_counts: HashMap::default(), remarks: Vec::new() };
    let mut random = Random::new();
    let mut weak_counts: Vec<usize> = Vec::new();
    while !unreachable.is_empty() {
        let items: usize = unreachable.iter().map(|&place| 1 + table.targets_of(place).len()).sum();
        let shared = unreachable.iter().any(|&place| table.has(place, SHARED));
        let wanted = match shared {
            true => ((MAX_ITEMS / items) as u32).clamp(MIN_VISITS, MAX_VISITS),
            false => 1,
        };
        if confirmed.visits > wanted {
            break;
        }
        if shared {
            random.shuffle(&mut unreachable);
            // Let other threads run, even on a single processor.
            match confirmed.visits % 4 {
                0 => std::thread::sleep(Duration::from_micros(20 + random.next() % 64)),
                _ => std::thread::yield_now(),
            }
        }
        let is_last = confirmed.visits == wanted;
        let mut changed = visit_all(table, &unreachable, is_last.then_some(&mut confirmed));
        let now = unreachable.iter().map(|&place| table.weak_count(place));
        if confirmed.visits == 1 {
            weak_counts.resize(table.len(), 0);
            unreachable.iter().zip(now).for_each(|(&place, weak)| weak_counts[place as usize] = weak);
        } else {
            let differ = |&(place, weak): &(u32, usize)| weak_counts[place as usize] != weak;
            changed.extend(unreachable.iter().copied().zip(now).filter(differ).map(|(place, _)| place));
        }
        confirmed.visits += 1;
        if !changed.is_empty() {
            garbage::mark_reached(table, changed);
            unreachable.retain(|&place| !table.has(place, HELD));
        }
    }
    confirmed.weak.retain(|&(from, to)| !table.has(from, HELD) && !table.has(to, HELD));
    let weak =
        unreachable.iter().map(|&place| (place, weak_counts[place as usize])).filter(|&(_, weak)| weak > 0);
    confirmed.weak_counts = weak.collect();
    confirmed
}

/// Visits the values once, and returns those that have changed.
fn visit_all(table: &Table, places: &[u32], last: Option<&mut Confirmation>) -> Vec<u32> {
    let differs = |&place: &u32| table.strong_count(place) != table.strong[place as usize];
    let mut changed: Vec<u32> = places.iter().copied().filter(differs).collect();
    fence(Ordering::SeqCst);
    let pointers = places.iter().map(|&place| table.targets_of(place).len()).sum();
    let mut check = RevisitCheck {
        table,
        place: 0,
        expected: [].iter(),
        same: true,
        changed: Vec::new(),
        last: last.map(|confirmed| (DuplicateDetector::with_capacity(pointers), confirmed)),
        twice_by: Vec::new(),
    };
    for &place in places {
        check.place = place;
        check.expected = table.targets_of(place).iter();
        check.same = true;
        let visited = table.visit(place, &mut check);
        let same = check.same && check.expected.next().is_none();
        // If visiting a value panics, every visit to it panics, and only the pointers reported before the panic
        // count.
        if !same || (!visited && !table.has(place, super::table::INCOMPLETE)) {
            check.changed.push(place);
        }
    }
    let RevisitCheck { changed: found, last, mut twice_by, .. } = check;
    changed.extend(found);
    if let Some((twice, confirmed)) = last {
        changed.extend(twice.targets.into_iter().filter_map(|target| table.place_of(target)));
        twice_by.sort_unstable();
        twice_by.dedup();
        confirmed.remarks.extend(twice_by.into_iter().map(garbage::format_double_report));
    }
    fence(Ordering::SeqCst);
    changed.extend(places.iter().copied().filter(differs));
    changed
}

/// A visitor that checks whether a value still refers to the same values.
struct RevisitCheck<'a> {
    table: &'a Table,
    place: u32,
    expected: std::slice::Iter<'a, u32>,
    same: bool,
    changed: Vec<u32>,
    /// The detector of pointers that are reported twice, and the result. Set only during the last visit.
    last: Option<(DuplicateDetector, &'a mut Confirmation)>,
    twice_by: Vec<&'static str>,
}

impl Sink for RevisitCheck<'_> {
    fn wants_paths(&self) -> bool {
        false
    }

    fn strong(&mut self, _: &Path, target: &dyn Counted, _: Option<u64>) {
        let Some(&expected) = self.expected.next() else {
            self.same = false;
            return;
        };
        if self.table.address(expected) != target.address() {
            self.same = false;
        } else if self.table.flags[expected as usize] & (HELD | SHARED) == SHARED
            && target.strong_count() != self.table.strong[expected as usize] + 1
        {
            // The count is read while the visited value contains the pointer. It differs from the count in the table, so
            // another thread has created or dropped a pointer to the target.
            self.changed.push(expected);
        }
        if let Some((twice, _)) = &mut self.last {
            let before = twice.targets.len();
            twice.strong(target);
            if twice.targets.len() > before {
                self.twice_by.push(self.table.value_name(self.place));
            }
        }
    }

    fn weak(&mut self, _: &Path, address: usize) {
        if let Some((_, confirmed)) = &mut self.last
            && let Some(to) = self.table.place_of(address)
        {
            confirmed.weak.push((self.place, to));
        }
    }

    fn memory(&mut self, _: &Path, _: DeviceMemory) {}

    fn opaque(&mut self, _: &Path, _: &str) {}

    fn show(&mut self, _: &Path, _: &dyn fmt::Debug) {}
}

/// A random number generator whose output other threads cannot predict.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let here = 0_u8;
        Self(ticks() ^ (std::ptr::from_ref(&here).addr() as u64).rotate_left(32))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn shuffle(&mut self, places: &mut [u32]) {
        for end in (1..places.len()).rev() {
            places.swap(end, (self.next() % (end as u64 + 1)) as usize);
        }
    }
}

/// Returns the number of weak pointers to each unreachable value from outside all unreachable values. Values without
/// such pointers are left out.
///
/// A weak pointer in a value that can itself be reached through a weak pointer also counts as outside.
pub(super) fn count_outside_weak_pointers(table: &Table, confirmed: &Confirmation) -> HashMap<u32, u64> {
    let mut outside: HashMap<u32, u64> =
        confirmed.weak_counts.iter().map(|(&place, &count)| (place, count as u64)).collect();
    let mut inside: HashMap<u32, Vec<u32>> = HashMap::default();
    for &(from, to) in &confirmed.weak {
        inside.entry(from).or_default().push(to);
        if let Some(count) = outside.get_mut(&to) {
            *count = count.saturating_sub(1);
        }
    }
    let mut waiting: Vec<u32> =
        outside.iter().filter(|&(_, &count)| count > 0).map(|(&place, _)| place).collect();
    let mut reached: HashSet<u32> = waiting.iter().copied().collect();
    while let Some(place) = waiting.pop() {
        for &target in table.targets_of(place) {
            if reached.insert(target) {
                waiting.push(target);
            }
        }
        for &target in inside.get(&place).into_iter().flatten() {
            *outside.entry(target).or_default() += 1;
            if reached.insert(target) {
                waiting.push(target);
            }
        }
    }
    outside.retain(|_, count| *count > 0);
    outside
}
