//! Locations in memory without addresses: segments are numbered in the order in which they were made.

use crate::SimulatedMemory;
use std::collections::BTreeMap;

/// The segments of a device by address. An expandable range counts as one, from its first page on. The
/// simulated device never reuses an address, so nothing is ever removed.
#[derive(Debug, Default)]
pub(super) struct Places {
    ordinals: BTreeMap<u64, u64>,
}

impl Places {
    /// Adds a segment that was reserved from the device.
    pub(super) fn add(&mut self, base: u64) {
        let next = self.ordinals.len() as u64;
        self.ordinals.entry(base).or_insert(next);
    }

    /// Adds the range of mapped pages.
    pub(super) fn add_range(&mut self, address: u64, memory: &SimulatedMemory) {
        self.add(memory.range_of(address).unwrap_or(address));
    }

    /// Returns the number of a segment and the offset in it.
    pub(super) fn find(&self, address: u64) -> (u64, u64) {
        let found = self.ordinals.range(..=address).next_back();
        found.map_or((0, 0), |(base, ordinal)| (*ordinal, address - base))
    }
}
