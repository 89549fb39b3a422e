//! Determines the unreachable values by subtracting the strong pointers found in other values from each value's count.
//! A value with a remainder is held from outside, and so is everything that it leads to. All other values are held only
//! by each other.

use super::table::{HELD, INCOMPLETE, MEMORY, SHARED, Table};
use foldhash::{HashMap, HashSet};
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink};
use std::fmt;

/// The maximum number of values whose types are named because too many pointers to them were reported.
const MAX_TYPES_NAMED: usize = 1000;

/// Returns, for each value, the number of strong pointers to it that are in no other value. This number is negative if
/// more pointers were reported than exist.
pub(super) fn count_outside_pointers(table: &Table) -> Vec<i64> {
    let mut outside: Vec<i64> = table.strong.iter().map(|&strong| strong as i64).collect();
    table.targets.iter().for_each(|&target| outside[target as usize] -= 1);
    outside
}

/// Marks the values that are held from outside. Also marks values to which the program has dropped its last pointer during
/// the scan. Only the scan still holds these values, and they are dropped when it ends.
pub(super) fn mark_held(table: &mut Table, outside: &[i64]) {
    let is_held = |&place: &u32| outside[place as usize] != 0 || table.strong[place as usize] == 0;
    let held: Vec<u32> = (0..table.len() as u32).filter(is_held).collect();
    mark_reached(table, held);
}

/// Marks values, and all values that they lead to, as held.
pub(super) fn mark_reached(table: &mut Table, from: impl IntoIterator<Item = u32>) {
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

/// Returns the unreachable values, in ascending order.
pub(super) fn find_unreachable(table: &Table) -> Vec<u32> {
    (0..table.len() as u32).filter(|&place| !table.has(place, HELD)).collect()
}

/// Formats remarks about values to which more pointers were reported than exist. Such values count as held.
pub(super) fn describe_overreported(table: &Table, outside: &[i64]) -> Vec<String> {
    let over: HashSet<u32> =
        (0..table.len() as u32).filter(|&place| outside[place as usize] < 0).take(MAX_TYPES_NAMED).collect();
    if over.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<&'static str> = Vec::new();
    let mut unclear: HashSet<u32> = over.iter().copied().filter(|&place| !table.has(place, SHARED)).collect();
    for place in 0..table.len() as u32 {
        if !table.targets_of(place).iter().any(|target| over.contains(target)) {
            continue;
        }
        let mut twice = DuplicateDetector::new();
        table.visit(place, &mut twice);
        if !twice.targets.is_empty() {
            names.push(table.value_name(place));
            for target in twice.targets {
                table.place_of(target).map(|place| unclear.remove(&place));
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    let mut remarks: Vec<String> = names.into_iter().map(format_double_report).collect();
    let mut names: Vec<&'static str> = unclear.into_iter().map(|place| table.value_name(place)).collect();
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

/// Formats a remark about a type that reports a pointer twice.
pub(super) fn format_double_report(name: &str) -> String {
    format!("`{name}` reports a strong pointer more than once: see its implementation of `References`.")
}

/// A detector of pointers that are reported twice. It recognizes pointers by their locations. No two pointers have the
/// same location, except for copies on the stack that are dropped after being reported.
pub(super) struct DuplicateDetector {
    /// The address of a variable in the frame of the function that created the detector. The frames of all callees are on
    /// one side of it.
    top: usize,
    seen: HashMap<usize, usize>,
    /// The targets' addresses of repeatedly reported pointers, once for each repetition.
    pub(super) targets: Vec<usize>,
}

impl DuplicateDetector {
    /// Creates a detector for pointers that the calling function and its callees report.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Like [`new`](Self::new), but with room for this many pointers.
    #[inline(always)]
    pub(super) fn with_capacity(pointers: usize) -> Self {
        let here = 0_u8;
        let top = std::ptr::from_ref(std::hint::black_box(&here)).addr();
        Self {
            top,
            seen: HashMap::with_capacity_and_hasher(pointers, Default::default()),
            targets: Vec::new(),
        }
    }

    /// Records a reported pointer.
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

impl Sink for DuplicateDetector {
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

/// Returns the number of values with `flag`, which is the flag either for device memory or for parts that were not
/// visited.
pub(super) fn count_flagged(table: &Table, flag: u8) -> u64 {
    debug_assert!(flag == MEMORY || flag == INCOMPLETE);
    table.flags.iter().filter(|&&flags| flags & flag != 0).count() as u64
}
