//! A device's allocated bytes over time, with queries over time intervals.

use crate::analysis::Profile;
use crate::series::walk;
use memtrack_model::optrace::DeviceIndex;

/// A state of a device, as an index into a [`Curve`]. A state is the interval between two consecutive times
/// at which the device's memory changes. State 0 precedes the first change.
pub(crate) type State = usize;

/// A device's allocated bytes over time. Bytes can be added to any range of states.
pub(crate) struct Curve {
    /// The start of each state but the first, in ns.
    times_ns: Vec<i64>,
    totals: MaxTree,
}

impl Curve {
    pub(crate) fn of(profile: &Profile<'_>, device: DeviceIndex) -> Self {
        let (mut times_ns, mut totals) = (Vec::new(), vec![0]);
        walk(profile, device, |moment| {
            times_ns.push(moment.time_ns);
            totals.push(moment.total());
        });
        Self { times_ns, totals: MaxTree::of(&totals) }
    }

    /// Returns the state immediately before this time.
    pub(crate) fn state_before(&self, time_ns: i64) -> State {
        self.times_ns.partition_point(|&time| time < time_ns)
    }

    /// Returns the state after all changes up to and including this time.
    pub(crate) fn state_after(&self, time_ns: i64) -> State {
        self.times_ns.partition_point(|&time| time <= time_ns)
    }

    pub(crate) fn last(&self) -> State {
        self.times_ns.len()
    }

    /// Returns the start of a state in ns, or `None` for the first state.
    pub(crate) fn begin_ns(&self, state: State) -> Option<i64> {
        Some(self.times_ns[state.checked_sub(1)?])
    }

    /// Finds the highest total among the states from `first` to `last`. Returns the first state that reaches
    /// it, and the total.
    pub(crate) fn find_highest(&self, first: State, last: State) -> (State, i64) {
        self.totals.find_highest(first, last.max(first))
    }

    /// Adds bytes to all states from `first` to `last`. Does nothing if the range is empty.
    pub(crate) fn add_bytes(&mut self, first: State, last: State, bytes: i64) {
        if first <= last {
            self.totals.add_bytes(first, last, bytes);
        }
    }
}

/// A segment tree over a sequence of numbers. In logarithmic time, it can return the maximum of any range or
/// add a number to all elements of a range.
struct MaxTree {
    /// The number of leaves, which is a power of two.
    width: usize,
    /// The first maximum among each node's leaves. It includes amounts that were added at the node itself or
    /// below it, but not those added above it.
    highest: Vec<Highest>,
    /// The amount that was added to all leaves of each node.
    added: Vec<i64>,
}

/// The position of a number and the number.
type Highest = (usize, i64);

/// Returns the higher of two numbers, or the left one if they are equal.
const fn higher(left: Highest, right: Highest) -> Highest {
    if right.1 > left.1 { right } else { left }
}

impl MaxTree {
    fn of(numbers: &[i64]) -> Self {
        let width = numbers.len().next_power_of_two();
        let mut highest = vec![(0, i64::MIN / 2); 2 * width];
        for (place, &number) in numbers.iter().enumerate() {
            highest[width + place] = (place, number);
        }
        for node in (1..width).rev() {
            highest[node] = higher(highest[2 * node], highest[2 * node + 1]);
        }
        Self { width, highest, added: vec![0; 2 * width] }
    }

    fn add_bytes(&mut self, first: usize, last: usize, number: i64) {
        self.add_below(1, (0, self.width - 1), (first, last), number);
    }

    fn add_below(&mut self, node: usize, (from, to): (usize, usize), range: (usize, usize), number: i64) {
        if range.1 < from || to < range.0 {
            return;
        }
        if range.0 <= from && to <= range.1 {
            self.highest[node].1 = self.highest[node].1.saturating_add(number);
            self.added[node] = self.added[node].saturating_add(number);
            return;
        }
        let middle = usize::midpoint(from, to);
        self.add_below(2 * node, (from, middle), range, number);
        self.add_below(2 * node + 1, (middle + 1, to), range, number);
        let (place, below) = higher(self.highest[2 * node], self.highest[2 * node + 1]);
        self.highest[node] = (place, below.saturating_add(self.added[node]));
    }

    fn find_highest(&self, first: usize, last: usize) -> Highest {
        self.highest_below(1, (0, self.width - 1), (first, last)).unwrap_or((first, 0))
    }

    fn highest_below(
        &self,
        node: usize,
        (from, to): (usize, usize),
        range: (usize, usize),
    ) -> Option<Highest> {
        if range.1 < from || to < range.0 {
            return None;
        }
        if range.0 <= from && to <= range.1 {
            return Some(self.highest[node]);
        }
        let middle = usize::midpoint(from, to);
        let left = self.highest_below(2 * node, (from, middle), range);
        let right = self.highest_below(2 * node + 1, (middle + 1, to), range);
        let (place, highest) = left.into_iter().chain(right).reduce(higher)?;
        Some((place, highest.saturating_add(self.added[node])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn max_tree_agrees_with_list(
            mut list in prop::collection::vec(-50_i64..50, 1..40),
            changes in prop::collection::vec((0_usize..40, 0_usize..40, -20_i64..20), 0..30),
        ) {
            let mut tree = MaxTree::of(&list);
            for (a, b, number) in changes {
                let (first, last) = (a.min(b) % list.len(), a.max(b).min(list.len() - 1));
                let (first, last) = (first.min(last), last);
                let part = &list[first..=last];
                let highest = *part.iter().max().unwrap();
                let place = first + part.iter().position(|&one| one == highest).unwrap();
                prop_assert_eq!(tree.find_highest(first, last), (place, highest));
                tree.add_bytes(first, last, number);
                list[first..=last].iter_mut().for_each(|one| *one += number);
            }
            let highest = *list.iter().max().unwrap();
            prop_assert_eq!(tree.find_highest(0, list.len() - 1).1, highest);
        }
    }
}
