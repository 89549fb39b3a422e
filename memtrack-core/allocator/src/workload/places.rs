//! Converts addresses to locations that do not depend on addresses: the number of a segment in creation order, and an
//! offset.

use crate::SimulatedMemory;
use std::collections::BTreeMap;

/// The numbers of a device's segments, by address. An expandable range counts as one segment, which is created with
/// its first page. The simulated device never reuses an address, so segments are never removed.
#[derive(Debug, Default)]
pub(super) struct SegmentNumbers {
    ordinals: BTreeMap<u64, u64>,
}

impl SegmentNumbers {
    /// Adds a segment under the next number, unless it was added before.
    pub(super) fn add(&mut self, base: u64) {
        let next = self.ordinals.len() as u64;
        self.ordinals.entry(base).or_insert(next);
    }

    /// Adds the expandable range that contains a mapped page, unless it was added before.
    pub(super) fn add_range(&mut self, address: u64, memory: &SimulatedMemory) {
        self.add(memory.range_of(address).unwrap_or(address));
    }

    /// Returns the number of the segment that contains an address, and the offset within the segment, or (0, 0) if the
    /// segment is unknown.
    pub(super) fn find(&self, address: u64) -> (u64, u64) {
        let found = self.ordinals.range(..=address).next_back();
        found.map_or((0, 0), |(base, ordinal)| (*ordinal, address - base))
    }
}
