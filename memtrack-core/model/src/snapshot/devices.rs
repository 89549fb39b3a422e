//! The device numbers that reports use. Accelerators keep their ordinals. The host heap, mapped memory and pinned host memory
//! get the ordinals after the last accelerator's, in this order, so that all have the same numbers in PyTorch's form.

use super::{DeviceStatistics, Snapshot};
use crate::event::{DeviceId, DeviceKind};
use std::collections::BTreeSet;

/// The numbers that reports use for a snapshot's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordinals {
    heap: u16,
    mapped: u16,
    pinned: u16,
}

impl Ordinals {
    /// Returns the ordinal of a device.
    pub fn of(self, device: DeviceId) -> u16 {
        match device {
            DeviceId::HOST => self.heap,
            DeviceId::MAPPED => self.mapped,
            DeviceId::PINNED => self.pinned,
            DeviceId(ordinal) => ordinal,
        }
    }
}

impl Snapshot {
    /// Returns every device that an event, a block, a segment or a count mentions, with host memory last: mapped, pinned, and
    /// the heap.
    pub fn device_ids(&self) -> Vec<DeviceId> {
        let mut devices: BTreeSet<DeviceId> = self.devices.iter().map(|row| row.device).collect();
        devices.extend(self.blocks.iter().map(|block| block.device));
        devices.extend(self.segments.iter().map(|segment| segment.device));
        // Adjacent events mostly have the same device, and looking up every event's device in the set would cost more
        // than the loop.
        let mut previous = None;
        for &device in &self.events.device {
            if previous != Some(device) {
                devices.insert(device);
                previous = Some(device);
            }
        }
        devices.into_iter().collect()
    }

    /// Returns every device that [`Self::device_ids`] lists, in the order of their ordinals in reports.
    pub fn devices_by_ordinal(&self) -> Vec<DeviceId> {
        let (mut devices, ordinals) = (self.device_ids(), self.ordinals());
        devices.sort_by_key(|&device| ordinals.of(device));
        devices
    }

    /// Returns the ordinals of the snapshot's devices. This visits all events, so call it only once to look up many
    /// devices.
    pub fn ordinals(&self) -> Ordinals {
        let devices = self.device_ids();
        let pytorch = self.pytorch.as_deref();
        let host = pytorch.into_iter().flat_map(|pytorch| [pytorch.heap, pytorch.mapped]).flatten();
        let accelerators = devices.iter().copied().chain(host).filter(|device| device.is_accelerator());
        let heap = accelerators.max().map_or(0, |last| last.0 + 1);
        let mapped = heap + u16::from(devices.contains(&DeviceId::HOST));
        Ordinals { heap, mapped, pinned: mapped + u16::from(devices.contains(&DeviceId::MAPPED)) }
    }

    /// Returns the recorder's counts for `device`, which are exact and include events that sampling and the ring
    /// omitted. Returns `None` if the recorder did not count.
    pub fn exact_counts(&self, device: DeviceId) -> Option<&DeviceStatistics> {
        self.devices.iter().find(|row| row.device == device && row.counted)
    }

    /// Returns the ordinal of `device` in reports. For host memory, this visits all events; see [`Self::ordinals`].
    pub fn ordinal(&self, device: DeviceId) -> u16 {
        if device.is_accelerator() { device.0 } else { self.ordinals().of(device) }
    }

    /// Returns the kind of a device's memory. In PyTorch's form, a recording's heap and mapped memory are numbered like
    /// devices, and only files written by memtrack identify them; [`DeviceId::HOST`] is pinned host memory there.
    pub fn device_kind(&self, device: DeviceId) -> DeviceKind {
        match self.pytorch.as_deref() {
            None => device.kind(),
            Some(pytorch) if pytorch.heap == Some(device) => DeviceKind::Host,
            Some(pytorch) if pytorch.mapped == Some(device) => DeviceKind::Mapped,
            Some(_) if device.is_host() => DeviceKind::Pinned,
            Some(_) => DeviceKind::Device,
        }
    }

    /// Returns whether the device is the heap of the process, according to [`Self::device_kind`].
    pub fn is_heap(&self, device: DeviceId) -> bool {
        self.device_kind(device).is_host()
    }

    /// Returns the device's name in reports: `device 0`, or the name of its kind.
    pub fn device_name(&self, device: DeviceId) -> String {
        let name = self.device_kind(device).name().map(str::to_owned);
        name.unwrap_or_else(|| format!("device {}", self.ordinal(device)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot_with_devices(devices: &[DeviceId]) -> Snapshot {
        Snapshot {
            devices: devices.iter().copied().map(DeviceStatistics::of).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn host_comes_after_last_accelerator() {
        assert_eq!(snapshot_with_devices(&[DeviceId::HOST]).ordinal(DeviceId::HOST), 0);
        let mixed = snapshot_with_devices(&[DeviceId::HOST, DeviceId(2), DeviceId(0)]);
        assert_eq!(mixed.ordinal(DeviceId::HOST), 3);
    }

    #[test]
    fn other_host_memory_comes_after_host() {
        let all = [DeviceId(1), DeviceId::HOST, DeviceId::PINNED, DeviceId::MAPPED];
        let ordinals = snapshot_with_devices(&all).ordinals();
        assert_eq!(all.map(|device| ordinals.of(device)), [1, 2, 4, 3]);
        let pinned = snapshot_with_devices(&[DeviceId(1), DeviceId::HOST, DeviceId::PINNED]);
        assert_eq!((pinned.ordinal(DeviceId::HOST), pinned.ordinal(DeviceId::PINNED)), (2, 3));
        assert_eq!(snapshot_with_devices(&[DeviceId::PINNED]).ordinal(DeviceId::PINNED), 0);
    }
}
