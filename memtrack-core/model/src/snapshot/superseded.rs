//! Removes driver allocations that turned out to be a pool's segments. The driver hook records each allocation as a
//! block until a pool reports blocks inside it. The events for that block are removed here, so that a pool's segment
//! never counts as memory in use, not even for a moment.

use super::Snapshot;
use crate::event::{Action, DeviceId, EventFlags};
use std::collections::HashMap;

impl Snapshot {
    /// Removes the allocations that turned out to be a pool's segments, and the events that mark them
    /// ([`EventFlags::SUPERSEDED`]). The counts of recorded events are reduced accordingly.
    pub fn remove_superseded(&mut self) {
        let superseded = |flags: &EventFlags| flags.contains(EventFlags::SUPERSEDED);
        if !self.events.flags.iter().any(superseded) {
            return;
        }
        let mut keep = vec![true; self.events.len()];
        // The newest allocation of a whole segment at each address.
        let mut whole: HashMap<(DeviceId, u64), usize> = HashMap::new();
        for (row, event) in self.events.iter().enumerate() {
            let place = (event.device, event.address);
            if event.flags.contains(EventFlags::SUPERSEDED) {
                keep[row] = false;
                // The allocation is absent if the ring dropped it.
                if let Some(alloc) = whole.remove(&place) {
                    keep[alloc] = false;
                }
            } else if event.action == Action::Alloc && event.flags.contains(EventFlags::WHOLE_SEGMENT) {
                whole.insert(place, row);
            }
        }
        for row in (0..keep.len()).filter(|&row| !keep[row]) {
            let device = self.events.device[row];
            if let Some(counts) = self.devices.iter_mut().find(|counts| counts.device == device) {
                counts.recorded = counts.recorded.saturating_sub(1);
            }
        }
        let rows: Vec<u32> = (0..keep.len()).filter(|&row| keep[row]).map(|row| row as u32).collect();
        self.events.pick(&rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, StackId, StreamId};
    use crate::snapshot::DeviceStatistics;

    fn event(ticks: u64, action: Action, address: u64, flags: EventFlags) -> Event {
        Event {
            ticks,
            address,
            size_bytes: 64,
            stream: StreamId(0),
            stack: StackId(0),
            scope: Default::default(),
            thread: Default::default(),
            device: DeviceId(0),
            action,
            flags,
        }
    }

    #[test]
    fn only_newest_allocation_of_segment_is_removed() {
        let (whole, superseded) = (EventFlags::WHOLE_SEGMENT, EventFlags::SUPERSEDED);
        let mut snapshot = Snapshot::default();
        snapshot.events.extend(&[
            event(1, Action::Alloc, 64, whole),
            event(2, Action::Free, 64, whole),
            event(3, Action::Alloc, 64, whole),
            event(4, Action::Alloc, 128, whole),
            event(5, Action::Free, 64, whole.with(superseded)),
            event(6, Action::Alloc, 64, EventFlags::default()),
            event(7, Action::Free, 192, whole.with(superseded)),
        ]);
        let counts = DeviceStatistics { recorded: 9, dropped: 2, ..DeviceStatistics::of(DeviceId(0)) };
        snapshot.devices.push(counts);
        snapshot.remove_superseded();
        assert_eq!(snapshot.events.ticks, [1, 2, 4, 6]);
        assert_eq!(snapshot.devices[0].recorded, 6);
    }
}
