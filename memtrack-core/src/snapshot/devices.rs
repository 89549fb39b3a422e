//! The devices of a snapshot as reports number them: accelerators keep their ordinal, and the host heap takes the
//! ordinal after the last of them.

use super::Snapshot;
use crate::event::DeviceId;
use std::collections::BTreeSet;

impl Snapshot {
    /// Every device that an event, a block, a segment or a count mentions, the host heap last.
    pub fn device_ids(&self) -> Vec<DeviceId> {
        let mut devices: BTreeSet<DeviceId> = self.devices.iter().map(|row| row.device).collect();
        devices.extend(self.blocks.iter().map(|block| block.device));
        devices.extend(self.segments.iter().map(|segment| segment.device));
        // Neighbours are mostly alike: asking the set for every event would cost more than the walk.
        let mut previous = None;
        for &device in &self.events.device {
            if previous != Some(device) {
                devices.insert(device);
                previous = Some(device);
            }
        }
        devices.into_iter().collect()
    }

    /// The ordinal of the host heap: the one after the last accelerator, 0 when there is none.
    pub fn host_ordinal(&self) -> u16 {
        self.device_ids().iter().filter(|device| !device.is_host()).max().map_or(0, |last| last.0 + 1)
    }

    /// The ordinal of `device` in reports.
    pub fn ordinal(&self, device: DeviceId) -> u16 {
        if device.is_host() { self.host_ordinal() } else { device.0 }
    }

    /// The device with that ordinal in reports, if the snapshot has it.
    pub fn device_at(&self, ordinal: u16) -> Option<DeviceId> {
        self.device_ids().into_iter().find(|&device| self.ordinal(device) == ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::DeviceStatistics;

    fn with_devices(devices: &[DeviceId]) -> Snapshot {
        Snapshot {
            devices: devices.iter().copied().map(DeviceStatistics::of).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_host_comes_after_the_last_accelerator() {
        assert_eq!(with_devices(&[DeviceId::HOST]).host_ordinal(), 0);
        let mixed = with_devices(&[DeviceId::HOST, DeviceId(2), DeviceId(0)]);
        assert_eq!(mixed.host_ordinal(), 3);
        assert_eq!(mixed.device_at(3), Some(DeviceId::HOST));
        assert_eq!(mixed.device_at(2), Some(DeviceId(2)));
        assert_eq!(mixed.device_at(1), None);
    }
}
