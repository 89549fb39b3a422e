//! Which values nothing outside holds: of each value's strong pointers those in other values are subtracted; who has some
//! left is held from outside, and so is all that it leads to. The rest is held by nothing but itself.

use super::table::{HELD, INCOMPLETE, MEMORY, SHARED, Table};
use foldhash::{HashMap, HashSet};
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink};
use std::fmt;

/// Of so many values that report too much the types are told.
const MOST_TOLD: usize = 1000;

/// How many strong pointers of each value are in no other value; negative where more were reported than there are.
pub(super) fn outside(table: &Table) -> Vec<i64> {
    let mut outside: Vec<i64> = table.strong.iter().map(|&strong| strong as i64).collect();
    table.targets.iter().for_each(|&target| outside[target as usize] -= 1);
    outside
}

/// Marks what is held from outside. So is what only the scan holds, because the program has let go of it meanwhile: it ends with
/// the scan.
pub(super) fn mark_held(table: &mut Table, outside: &[i64]) {
    let is_held = |&place: &u32| outside[place as usize] != 0 || table.strong[place as usize] == 0;
    let held: Vec<u32> = (0..table.len() as u32).filter(is_held).collect();
    mark(table, held);
}

/// Marks values, and all they lead to, as held.
pub(super) fn mark(table: &mut Table, from: impl IntoIterator<Item = u32>) {
    let mut waiting: Vec<u32> = Vec::new();
    let hold = |table: &mut Table, waiting: &mut Vec<u32>, place: u32| {
        let flags = &mut table.flags[place as usize];
        if *flags & HELD == 0 {
            *flags |= HELD;
            waiting.push(place);
        }
    };
    for place in from {
        hold(table, &mut waiting, place);
        while let Some(held) = waiting.pop() {
            let (begin, end) = (table.starts[held as usize], table.starts[held as usize + 1]);
            for at in begin..end {
                let target = table.targets[at as usize];
                hold(table, &mut waiting, target);
            }
        }
    }
}

/// The values that nothing outside holds, in their order.
pub(super) fn unheld(table: &Table) -> Vec<u32> {
    (0..table.len() as u32).filter(|&place| !table.has(place, HELD)).collect()
}

/// What to tell people of values of which more pointers were reported than there are. They count as held.
pub(super) fn too_many_reported(table: &Table, outside: &[i64]) -> Vec<String> {
    let over: HashSet<u32> =
        (0..table.len() as u32).filter(|&place| outside[place as usize] < 0).take(MOST_TOLD).collect();
    if over.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<&'static str> = Vec::new();
    let mut unclear: HashSet<u32> = over.iter().copied().filter(|&place| !table.has(place, SHARED)).collect();
    for place in 0..table.len() as u32 {
        if !table.targets_of(place).iter().any(|target| over.contains(target)) {
            continue;
        }
        let mut twice = Twice::new();
        table.look_at(place, &mut twice);
        if !twice.targets.is_empty() {
            names.push(table.name(place));
            for target in twice.targets {
                table.place_of(target).map(|place| unclear.remove(&place));
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    let mut remarks: Vec<String> = names.into_iter().map(reports_twice).collect();
    let mut names: Vec<&'static str> = unclear.into_iter().map(|place| table.name(place)).collect();
    names.sort_unstable();
    names.dedup();
    remarks.extend(names.into_iter().map(|name| {
        format!(
            "More strong pointers to a `{name}` were reported than there are: some implementation of `References` \
             reports what it does not hold. It counts as held from outside."
        )
    }));
    remarks
}

/// What to tell people of a type that reports a pointer twice.
pub(super) fn reports_twice(name: &str) -> String {
    format!("`{name}` reports a strong pointer more than once: see its implementation of `References`.")
}

/// Whether a pointer is reported twice, by where it lies: no two pointers lie in one place. Copies on the stack, which are dropped
/// after they were reported, do.
pub(super) struct Twice {
    /// A place on the stack above all that is called.
    top: usize,
    seen: HashMap<usize, usize>,
    /// The targets of pointers that were reported again, once for each time, by their addresses.
    pub(super) targets: Vec<usize>,
}

impl Twice {
    /// Looks at what is reported from the function that called this, and what it calls.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self::with_room_for(0)
    }

    /// The same, for so many pointers.
    #[inline(always)]
    pub(super) fn with_room_for(pointers: usize) -> Self {
        let here = 0_u8;
        let top = std::ptr::from_ref(std::hint::black_box(&here)).addr();
        Self {
            top,
            seen: HashMap::with_capacity_and_hasher(pointers, Default::default()),
            targets: Vec::new(),
        }
    }

    /// A pointer is reported.
    pub(super) fn strong(&mut self, target: &dyn Counted) {
        let lies_at = std::ptr::from_ref(target).cast::<()>().addr();
        let here = 0_u8;
        let bottom = std::ptr::from_ref(std::hint::black_box(&here)).addr();
        let stack = bottom.min(self.top)..=bottom.max(self.top);
        if !stack.contains(&lies_at) && self.seen.insert(lies_at, target.address()) == Some(target.address())
        {
            self.targets.push(target.address());
        }
    }
}

impl Sink for Twice {
    fn wants_paths(&self) -> bool {
        false
    }

    fn strong(&mut self, _: &Path, target: &dyn Counted, _: Option<u64>) {
        Self::strong(self, target);
    }

    fn weak(&mut self, _: &Path, _: usize) {}

    fn memory(&mut self, _: &Path, _: DeviceMemory) {}

    fn opaque(&mut self, _: &Path, _: &str) {}

    fn show(&mut self, _: &Path, _: &dyn fmt::Debug) {}
}

/// Values with device memory, or with something in them that was not looked at.
pub(super) fn count(table: &Table, flag: u8) -> u64 {
    debug_assert!(flag == MEMORY || flag == INCOMPLETE);
    table.flags.iter().filter(|&&flags| flags & flag != 0).count() as u64
}
