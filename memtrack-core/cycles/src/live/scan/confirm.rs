//! Looks again at what seems to be held by nothing, and again: a thread that moves a pointer from one value to another while a scan
//! looks at both makes it count that pointer twice.
//!
//! What nobody can reach does not change: it has the same pointers and the same counts each time. A value that somebody can
//! reach passes for one that nobody can only if each single look is deceived in the same way: each pointer, seen as often, in the
//! same places, and each count, read before, while and after the values are looked at, and the one pointer by which whoever
//! moves the others must hold on is never counted. The order is drawn anew each time, and it decides whether a pointer that
//! moves between two values is seen in both or in neither, so that each look finds out with a chance of at least a half,
//! whatever the threads do. There are at least [`FEWEST`] such looks where threads share the values, and up to [`MOST`].
//! Values of one thread need only one: nobody moves anything meanwhile.

use super::garbage::{self, Twice};
use super::table::{HELD, SHARED, Table};
use foldhash::HashMap;
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink};
use memtrack_recorder::recorder::ticks;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Looks at values that threads share, at least.
const FEWEST: u32 = 8;
/// And at most,
const MOST: u32 = 32;
/// as long as not more values and pointers than this are looked at in all.
const MOST_ITEMS: usize = 8 << 20;

/// What was found.
pub(super) struct Confirmed {
    /// Looks at each value, the first one among them.
    pub(super) looks: u32,
    /// Weak pointers in values that nobody can reach: whose, and to what.
    pub(super) weak: Vec<(u32, u32)>,
    /// Of values that nobody can reach, and that weak pointers lead to.
    pub(super) weak_counts: HashMap<u32, usize>,
    pub(super) remarks: Vec<String>,
}

/// Marks what only seemed to be held by nothing.
pub(super) fn confirm(table: &mut Table) -> Confirmed {
    let mut unheld = garbage::unheld(table);
    let mut confirmed =
        Confirmed { looks: 1, weak: Vec::new(), weak_counts: HashMap::default(), remarks: Vec::new() };
    let mut chance = Chance::new();
    let mut weak_counts: Vec<usize> = Vec::new();
    while !unheld.is_empty() {
        let items: usize = unheld.iter().map(|&place| 1 + table.targets_of(place).len()).sum();
        let shared = unheld.iter().any(|&place| table.has(place, SHARED));
        let wanted = match shared {
            true => ((MOST_ITEMS / items) as u32).clamp(FEWEST, MOST),
            false => 1,
        };
        if confirmed.looks > wanted {
            break;
        }
        if shared {
            chance.shuffle(&mut unheld);
            // Others move on, also where there is one processor.
            match confirmed.looks % 4 {
                0 => std::thread::sleep(Duration::from_micros(20 + chance.next() % 64)),
                _ => std::thread::yield_now(),
            }
        }
        let is_last = confirmed.looks == wanted;
        let mut changed = look(table, &unheld, is_last.then_some(&mut confirmed));
        let now = unheld.iter().map(|&place| table.weak_now(place));
        if confirmed.looks == 1 {
            weak_counts.resize(table.len(), 0);
            unheld.iter().zip(now).for_each(|(&place, weak)| weak_counts[place as usize] = weak);
        } else {
            let differ = |&(place, weak): &(u32, usize)| weak_counts[place as usize] != weak;
            changed.extend(unheld.iter().copied().zip(now).filter(differ).map(|(place, _)| place));
        }
        confirmed.looks += 1;
        if !changed.is_empty() {
            garbage::mark(table, changed);
            unheld.retain(|&place| !table.has(place, HELD));
        }
    }
    confirmed.weak.retain(|&(from, to)| !table.has(from, HELD) && !table.has(to, HELD));
    let weak = unheld.iter().map(|&place| (place, weak_counts[place as usize])).filter(|&(_, weak)| weak > 0);
    confirmed.weak_counts = weak.collect();
    confirmed
}

/// Looks at values once. Returns those that are not as they were.
fn look(table: &Table, places: &[u32], last: Option<&mut Confirmed>) -> Vec<u32> {
    let differs = |&place: &u32| table.strong_now(place) != table.strong[place as usize];
    let mut changed: Vec<u32> = places.iter().copied().filter(differs).collect();
    fence(Ordering::SeqCst);
    let pointers = places.iter().map(|&place| table.targets_of(place).len()).sum();
    let mut again = Again {
        table,
        place: 0,
        expected: [].iter(),
        same: true,
        changed: Vec::new(),
        last: last.map(|confirmed| (Twice::with_room_for(pointers), confirmed)),
        twice_by: Vec::new(),
    };
    for &place in places {
        again.place = place;
        again.expected = table.targets_of(place).iter();
        again.same = true;
        let looked = table.look_at(place, &mut again);
        let same = again.same && again.expected.next().is_none();
        // Who panics does so each time; what it had reported before is what counts.
        if !same || (!looked && !table.has(place, super::table::INCOMPLETE)) {
            again.changed.push(place);
        }
    }
    let Again { changed: found, last, mut twice_by, .. } = again;
    changed.extend(found);
    if let Some((twice, confirmed)) = last {
        changed.extend(twice.targets.into_iter().filter_map(|target| table.place_of(target)));
        twice_by.sort_unstable();
        twice_by.dedup();
        confirmed.remarks.extend(twice_by.into_iter().map(garbage::reports_twice));
    }
    fence(Ordering::SeqCst);
    changed.extend(places.iter().copied().filter(differs));
    changed
}

/// Whether a value refers to what it did.
struct Again<'a> {
    table: &'a Table,
    place: u32,
    expected: std::slice::Iter<'a, u32>,
    same: bool,
    changed: Vec<u32>,
    /// In the last look: what is reported twice, and where weak pointers lead.
    last: Option<(Twice, &'a mut Confirmed)>,
    twice_by: Vec<&'static str>,
}

impl Sink for Again<'_> {
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
            // Read while the pointer is in its place: whoever has put it there holds another one.
            self.changed.push(expected);
        }
        if let Some((twice, _)) = &mut self.last {
            let before = twice.targets.len();
            twice.strong(target);
            if twice.targets.len() > before {
                self.twice_by.push(self.table.name(self.place));
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

/// Numbers that no thread can adapt to.
struct Chance(u64);

impl Chance {
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
