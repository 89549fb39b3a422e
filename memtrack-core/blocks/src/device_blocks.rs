//! The blocks of a device with their peak, for reports that need both: each takes a pass over all events.

use crate::lifetimes::{Lifetime, lifetimes};
use crate::peak::Peak;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// The lifetimes of a device's blocks, and the peak of their bytes.
#[derive(Clone, Debug)]
pub struct DeviceBlocks {
    /// The device.
    pub device: DeviceId,
    /// The lifetimes of all of the device's blocks; empty if the snapshot has none.
    pub lifetimes: Vec<Lifetime>,
    /// The peak of the live bytes.
    pub peak: Peak,
}

impl DeviceBlocks {
    /// Pairs the allocations and frees of `device`, and finds their peak.
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let lifetimes = lifetimes(snapshot, device);
        let peak = Peak::of(snapshot, device, &lifetimes);
        Self { device, lifetimes, peak }
    }

    /// Returns the bytes that were live after the event in this row.
    pub fn live_after(&self, row: Option<usize>) -> u64 {
        let live = self.lifetimes.iter().filter(|one| one.is_live_after(row));
        live.fold(0, |sum, one| sum.saturating_add(one.bytes))
    }

    /// Returns the blocks of each device of the snapshot.
    pub fn of_all(snapshot: &Snapshot) -> Vec<Self> {
        snapshot.device_ids().into_iter().map(|device| Self::of(snapshot, device)).collect()
    }
}
