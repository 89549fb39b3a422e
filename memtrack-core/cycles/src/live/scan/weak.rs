//! Counts weak pointers to unreachable values, because the program might still reach such a value by upgrading a weak
//! pointer.

use super::confirm::Confirmation;
use super::table::Table;
use foldhash::{HashMap, HashSet};

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
