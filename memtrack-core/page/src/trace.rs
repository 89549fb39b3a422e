//! The events of a device as a page numbers them, which is PyTorch's way: a recording's free, which completes at once,
//! counts as two events, the request and the completion.

use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;
use std::collections::HashMap;

/// The events of one device, in order.
pub(crate) struct Trace<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// For each event, its row in the snapshot's table. A recording's free has the same row twice.
    rows: Vec<u32>,
}

impl<'a> Trace<'a> {
    /// Creates a trace without events.
    pub(crate) fn empty(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, rows: Vec::new() }
    }

    /// Returns the traces of all devices that have events.
    pub(crate) fn of_all(snapshot: &'a Snapshot) -> HashMap<DeviceId, Self> {
        let mut traces = HashMap::new();
        let is_recording = snapshot.pytorch.is_none();
        let events = &snapshot.events;
        for (row, (&device, &action)) in events.device.iter().zip(&events.action).enumerate() {
            let Self { rows, .. } = traces.entry(device).or_insert_with(|| Self::empty(snapshot));
            rows.push(row as u32);
            if is_recording && action == Action::Free {
                rows.push(row as u32);
            }
        }
        traces
    }

    /// Returns the number of events.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the row of an event in the snapshot's table.
    pub(crate) fn row(&self, event: u32) -> usize {
        self.rows[event as usize] as usize
    }

    /// Returns the rows of all events.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().map(|&row| row as usize)
    }

    /// Returns the action of an event.
    pub(crate) fn action(&self, event: u32) -> Action {
        let action = self.snapshot.events.action[self.row(event)];
        match event.checked_sub(1) {
            _ if action != Action::Free || self.snapshot.pytorch.is_some() => action,
            Some(before) if self.row(before) == self.row(event) => Action::FreeCompleted,
            _ => Action::FreeRequested,
        }
    }

    /// Returns all events with their rows and actions.
    pub(crate) fn events(&self) -> impl DoubleEndedIterator<Item = (u32, usize, Action)> + '_ {
        (0..self.rows.len() as u32).map(|event| (event, self.row(event), self.action(event)))
    }

    /// Returns the first event of a row of the snapshot's table.
    pub(crate) fn event_of_row(&self, row: usize) -> Option<usize> {
        let event = self.rows.partition_point(|&other| (other as usize) < row);
        (self.rows.get(event).copied()? as usize == row).then_some(event)
    }

    /// Returns the time of the event in a row, in microseconds since the Unix epoch.
    pub(crate) fn time_us(&self, row: usize) -> u64 {
        time_us(self.snapshot, self.snapshot.events.ticks[row])
    }
}

/// Returns the time at `ticks` in microseconds since the Unix epoch, which is what the ticks of a PyTorch file are.
pub(crate) fn time_us(snapshot: &Snapshot, ticks: u64) -> u64 {
    if snapshot.pytorch.is_some() { ticks } else { snapshot.clock.time_ns(ticks) / 1000 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::Event;

    #[test]
    fn free_of_recording_is_two_events() {
        let mut snapshot = Snapshot::default();
        for action in [Action::Alloc, Action::Free, Action::SegmentFree] {
            snapshot.events.push(&Event { action, ..Event::BLANK });
        }
        let trace = Trace::of_all(&snapshot).remove(&Event::BLANK.device).unwrap();
        let events: Vec<_> = trace.events().collect();
        let expected = [
            (0, 0, Action::Alloc),
            (1, 1, Action::FreeRequested),
            (2, 1, Action::FreeCompleted),
            (3, 2, Action::SegmentFree),
        ];
        assert_eq!(events, expected);
        let found = [0, 1, 2, 3].map(|row| trace.event_of_row(row));
        assert_eq!(found, [Some(0), Some(1), Some(3), None]);
        // The actions of a PyTorch file are those that PyTorch wrote.
        snapshot.pytorch = Some(Box::default());
        let trace = Trace::of_all(&snapshot).remove(&Event::BLANK.device).unwrap();
        assert_eq!(trace.len(), 3);
    }
}
