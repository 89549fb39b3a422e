//! The table of the address ranges that the program has mapped. Calls may concern any part of a range, so ranges are split
//! where a call begins or ends. The table only does this arithmetic; `mapped` records the events.

use super::kind::Kind;
use std::collections::BTreeMap;
use std::ops::Range;

/// A range of the table that was removed, at least in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) kind: Kind,
    /// The range as it was before.
    pub(super) whole: Range<u64>,
    /// The part that was removed. The other parts are in the table as separate ranges.
    pub(super) inside: Range<u64>,
}

impl Cut {
    /// Returns the parts that are left, which are none, one or two.
    pub(super) fn rest(&self) -> impl Iterator<Item = Range<u64>> {
        let parts = [self.whole.start..self.inside.start, self.inside.end..self.whole.end];
        parts.into_iter().filter(|part| !part.is_empty())
    }
}

/// The ranges by their first address. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Regions {
    by_start: BTreeMap<u64, (u64, Kind)>,
}

/// The maximum number of ranges. Linux allows 65,530 mappings by default.
pub(super) const MAX_REGIONS: usize = 1 << 16;

/// The maximum memory of the table, in bytes: nodes of the map are at least half full.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = MAX_REGIONS * 2 * size_of::<(u64, (u64, Kind))>();

impl Regions {
    /// Adds a range, which must not overlap another one. Returns `false` if the table is full.
    pub(super) fn insert(&mut self, range: Range<u64>, kind: Kind) -> bool {
        if self.by_start.len() >= MAX_REGIONS {
            return false;
        }
        self.by_start.insert(range.start, (range.end, kind));
        true
    }

    /// Removes the part of a range that lies within `addresses`. Of several such ranges, the one with the highest addresses
    /// is chosen, among those for which `matches` returns `true`.
    pub(super) fn cut(&mut self, addresses: &Range<u64>, matches: impl Fn(Kind) -> bool) -> Option<Cut> {
        let (start, end, kind) = self.overlapping(addresses).find(|&(.., kind)| matches(kind))?;
        let cut = Cut { kind, whole: start..end, inside: start.max(addresses.start)..end.min(addresses.end) };
        self.by_start.remove(&start);
        for part in cut.rest() {
            self.by_start.insert(part.start, (part.end, kind));
        }
        Some(cut)
    }

    /// Returns whether all of `addresses` belongs to one range, and that range's kind.
    pub(super) fn kind_of(&self, addresses: &Range<u64>) -> Option<Kind> {
        let (&start, &(end, kind)) = self.by_start.range(..=addresses.start).next_back()?;
        (start <= addresses.start && addresses.end <= end).then_some(kind)
    }

    /// Returns the ranges that overlap `addresses`: first address, end and kind, the highest first.
    fn overlapping(&self, addresses: &Range<u64>) -> impl Iterator<Item = (u64, u64, Kind)> {
        let from = addresses.start;
        let before = self.by_start.range(..addresses.end).rev();
        before.map(|(&start, &(end, kind))| (start, end, kind)).take_while(move |&(_, end, _)| end > from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ranges: &[(Range<u64>, Kind)]) -> Regions {
        let mut regions = Regions::default();
        for (range, kind) in ranges {
            assert!(regions.insert(range.clone(), *kind));
        }
        regions
    }

    fn content(regions: &Regions) -> Vec<(Range<u64>, Kind)> {
        regions.by_start.iter().map(|(&start, &(end, kind))| (start..end, kind)).collect()
    }

    #[test]
    fn cut_leaves_the_parts_outside() {
        let mut regions = table(&[(10..20, Kind::Memory)]);
        let cut = regions.cut(&(13..15), |_| true).unwrap();
        assert_eq!((cut.whole.clone(), cut.inside.clone()), (10..20, 13..15));
        assert_eq!(cut.rest().collect::<Vec<_>>(), [10..13, 15..20]);
        assert_eq!(content(&regions), [(10..13, Kind::Memory), (15..20, Kind::Memory)]);
        assert_eq!(regions.cut(&(13..15), |_| true), None);
    }

    #[test]
    fn every_overlapping_range_is_cut_once() {
        let ranges = [
            (0..4, Kind::Reserved),
            (4..8, Kind::Memory),
            (10..14, Kind::SharedFile),
            (20..24, Kind::Memory),
        ];
        let mut regions = table(&ranges);
        let mut inside = Vec::new();
        while let Some(cut) = regions.cut(&(2..12), |_| true) {
            inside.push((cut.inside, cut.kind));
        }
        assert_eq!(inside, [(10..12, Kind::SharedFile), (4..8, Kind::Memory), (2..4, Kind::Reserved)]);
        let left = [(0..2, Kind::Reserved), (12..14, Kind::SharedFile), (20..24, Kind::Memory)];
        assert_eq!(content(&regions), left);
    }

    #[test]
    fn only_matching_ranges_are_cut() {
        let mut regions = table(&[(0..4, Kind::Reserved), (4..8, Kind::Memory), (8..12, Kind::PrivateFile)]);
        let mut inside = Vec::new();
        while let Some(cut) = regions.cut(&(0..12), Kind::can_become_memory) {
            inside.push(cut.inside.clone());
        }
        assert_eq!(inside, [8..12, 0..4]);
        assert_eq!(content(&regions), [(4..8, Kind::Memory)]);
    }

    #[test]
    fn kind_is_known_only_within_one_range() {
        let regions = table(&[(0..4, Kind::Reserved), (4..8, Kind::Memory)]);
        assert_eq!(regions.kind_of(&(5..8)), Some(Kind::Memory));
        assert_eq!([3..5, 8..9, 7..9].map(|range| regions.kind_of(&range)), [None; 3]);
    }
}
