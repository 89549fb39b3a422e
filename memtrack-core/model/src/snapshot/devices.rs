//! The device numbers that reports use. Accelerators keep their ordinals, the host heap gets the ordinal after the last
//! accelerator, and pinned host memory gets the ordinal after the heap's, so that pinned memory has the same number in
//! PyTorch's form.

use super::{DeviceStatistics, Snapshot};
use crate::event::DeviceId;
use std::collections::BTreeSet;

/// The numbers that reports use for a snapshot's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordinals {
    heap: u16,
    pinned: u16,
}

impl Ordinals {
    /// Returns the ordinal of a device.
    pub fn of(self, device: DeviceId) -> u16 {
        match device {
            DeviceId::HOST => self.heap,
            DeviceId::PINNED => self.pinned,
            DeviceId(ordinal) => ordinal,
        }
    }
}

impl Snapshot {
    /// Returns every device that an event, a block, a segment or a count mentions, with pinned host memory and the host
    /// heap last.
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

    /// Returns the ordinals of the snapshot's devices. This visits all events, so call it only once to look up many
    /// devices.
    pub fn ordinals(&self) -> Ordinals {
        let devices = self.device_ids();
        let heap = self.pytorch.as_deref().and_then(|pytorch| pytorch.heap);
        let accelerators = devices.iter().copied().chain(heap).filter(|device| device.is_accelerator());
        let heap = accelerators.max().map_or(0, |last| last.0 + 1);
        // As in PyTorch's form, pinned memory gets the number after the heap's, if there is a heap.
        Ordinals { heap, pinned: heap + u16::from(devices.contains(&DeviceId::HOST)) }
    }

    /// Returns the recorder's counts for `device`, which are exact and include events that sampling and the ring
    /// omitted. Returns `None` if the recorder did not count.
    pub fn exact_counts(&self, device: DeviceId) -> Option<&DeviceStatistics> {
        self.devices.iter().find(|row| row.device == device && row.counted)
    }

    /// Returns the ordinal of the host heap: 1 plus the last accelerator's ordinal, or 0 without accelerators. In
    /// PyTorch's form, where the heap is numbered like an accelerator, returns the ordinal of pinned memory.
    pub fn host_ordinal(&self) -> u16 {
        self.ordinals().heap
    }

    /// Returns the ordinal of `device` in reports. For host memory, this visits all events; see [`Self::ordinals`].
    pub fn ordinal(&self, device: DeviceId) -> u16 {
        if device.is_accelerator() { device.0 } else { self.ordinals().of(device) }
    }

    /// Returns whether the device is the heap of the process. In PyTorch's form, a recording's heap is numbered like a
    /// device, and only files written by memtrack identify it.
    pub fn is_heap(&self, device: DeviceId) -> bool {
        match &self.pytorch {
            Some(pytorch) => pytorch.heap == Some(device),
            None => device.is_host(),
        }
    }

    /// Returns whether the device is pinned host memory, which is the only host memory in PyTorch's files.
    pub fn is_pinned(&self, device: DeviceId) -> bool {
        if self.pytorch.is_some() { device.is_host() } else { device.is_pinned() }
    }

    /// Returns the device's name in reports: `device 0`, `host heap` or `pinned host memory`.
    pub fn device_name(&self, device: DeviceId) -> String {
        match (self.is_heap(device), self.is_pinned(device)) {
            (true, _) => "host heap".to_owned(),
            (_, true) => "pinned host memory".to_owned(),
            _ => format!("device {}", self.ordinal(device)),
        }
    }

    /// Returns the device that has this ordinal in reports, if the snapshot contains it.
    pub fn device_at(&self, ordinal: u16) -> Option<DeviceId> {
        let ordinals = self.ordinals();
        self.device_ids().into_iter().find(|&device| ordinals.of(device) == ordinal)
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
        assert_eq!(snapshot_with_devices(&[DeviceId::HOST]).host_ordinal(), 0);
        let mixed = snapshot_with_devices(&[DeviceId::HOST, DeviceId(2), DeviceId(0)]);
        assert_eq!(mixed.host_ordinal(), 3);
        assert_eq!(mixed.device_at(3), Some(DeviceId::HOST));
        assert_eq!(mixed.device_at(2), Some(DeviceId(2)));
        assert_eq!(mixed.device_at(1), None);
    }

    #[test]
    fn pinned_memory_comes_after_host() {
        let pinned = snapshot_with_devices(&[DeviceId(1), DeviceId::HOST, DeviceId::PINNED]);
        assert_eq!((pinned.host_ordinal(), pinned.ordinal(DeviceId::PINNED)), (2, 3));
        assert_eq!(pinned.device_at(3), Some(DeviceId::PINNED));
        assert_eq!(snapshot_with_devices(&[DeviceId::PINNED]).ordinal(DeviceId::PINNED), 0);
    }
}
