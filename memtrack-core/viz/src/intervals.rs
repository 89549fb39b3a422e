//! Address ranges that can overlap. If several ranges contain an address, [`Intervals::find`] returns the range that was
//! added first. Finding and adding take logarithmic time, because a later range only fills the gaps that earlier ranges
//! left.

use std::collections::BTreeMap;

/// Ranges in the order they were added.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    /// The parts of the address space that any range covers, as start → end. Adjacent parts are merged.
    covered: BTreeMap<i128, i128>,
    /// The same addresses split by the range that `find` returns, as start → end and the number of that range.
    pieces: BTreeMap<i128, (i128, u32)>,
    /// The start of each range.
    starts: Vec<i128>,
}

impl Intervals {
    /// Adds a range. Ranges are numbered from 0 in the order they are added.
    pub(super) fn add(&mut self, start: i128, size: i128) {
        let number = self.starts.len() as u32;
        self.starts.push(start);
        let end = start + size;
        if size <= 0 {
            return;
        }
        // The covered parts that the range touches are merged with it, so no part is visited twice.
        let (mut from, mut to, mut at) = (start, end, start);
        if let Some((&before, &until)) = self.covered.range(..=start).next_back()
            && until >= start
        {
            if until >= end {
                return;
            }
            self.covered.remove(&before);
            (from, at) = (before, until);
        }
        // `at` may be past the end, in which case nothing is left to merge.
        while at <= end
            && let Some((&next, &until)) = self.covered.range(at..=end).next()
        {
            self.covered.remove(&next);
            if next > at {
                self.pieces.insert(at, (next, number));
            }
            at = until;
            to = to.max(until);
        }
        if at < end {
            self.pieces.insert(at, (end, number));
        }
        self.covered.insert(from, to);
    }

    /// Returns the number and the start of the first added range that contains `address`.
    pub(super) fn find(&self, address: i128) -> Option<(u32, i128)> {
        let (_, &(end, number)) = self.pieces.range(..=address).next_back()?;
        (address < end).then(|| (number, self.starts[number as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_range_added_that_contains_address_is_found(
            ranges in prop::collection::vec((0i128..60, -1i128..20), 0..30),
        ) {
            let mut intervals = Intervals::default();
            for &(start, size) in &ranges {
                intervals.add(start, size);
            }
            for address in -1..90 {
                let first = ranges.iter().position(|&(start, size)| start <= address && address < start + size);
                let expected = first.map(|number| (number as u32, ranges[number].0));
                prop_assert_eq!(intervals.find(address), expected);
            }
        }
    }
}
