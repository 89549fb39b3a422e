//! The moment that a report describes: `peak`, `end`, `oom`, or an event number.

use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;

/// A moment on one device. Rows are rows of the snapshot's event table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The moment when the most bytes were live.
    Peak,
    /// The moment when the most bytes were reserved: after the event in this row or, if `None`, before the first event.
    Reserved(Option<usize>),
    /// The moment after the last event.
    End,
    /// The moment when memory last ran out, given by the row of the event.
    Oom(usize),
    /// The moment after an event, given by its number in the device's trace and by its row.
    Event(usize, usize),
}

memtrack_model::serialize_as!(Moment => String: |moment| moment.name());

impl Moment {
    /// Returns the moment when `device` last ran out of memory; `None` if it never did.
    pub fn last_oom(snapshot: &Snapshot, device: DeviceId) -> Option<Self> {
        let rows = snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == Action::Oom);
        rows.last().map(Self::Oom)
    }

    /// Returns the moment after event `number` of the device's trace, counting events as PyTorch does; `None` if the
    /// trace has no event with that number.
    pub fn event(snapshot: &Snapshot, device: DeviceId, number: usize) -> Option<Self> {
        let mut end = 0;
        let mut rows = snapshot.events.rows_of(device);
        let found = rows.find(|&row| {
            end += count_pytorch_events(snapshot, row);
            number < end
        });
        found.map(|row| Self::Event(number, row))
    }

    /// Returns the number of events in the device's trace, counting events as PyTorch does.
    pub fn events(snapshot: &Snapshot, device: DeviceId) -> usize {
        snapshot.events.rows_of(device).map(|row| count_pytorch_events(snapshot, row)).sum()
    }

    /// Returns the number of the event in `row` within the trace of `device`, counting events as PyTorch does, from 0.
    pub fn events_before(snapshot: &Snapshot, device: DeviceId, row: usize) -> usize {
        let earlier = snapshot.events.rows_of(device).take_while(|&other| other < row);
        earlier.map(|row| count_pytorch_events(snapshot, row)).sum()
    }

    /// Returns the number of the event after which the state is that after `row`. For a recording's free, which PyTorch
    /// counts as two events, this is the second one.
    pub fn last_event_of(snapshot: &Snapshot, device: DeviceId, row: usize) -> usize {
        Self::events_before(snapshot, device, row) + count_pytorch_events(snapshot, row) - 1
    }

    /// Returns the row of the last event up to this moment, or `None` if the moment is before the first event. Also
    /// returns `None` for the peak, because only [`Peak`](crate::peak::Peak) can determine that row.
    pub fn row(self) -> Option<usize> {
        match self {
            Self::Peak => None,
            Self::Reserved(row) => row,
            // A row past the last event.
            Self::End => Some(usize::MAX),
            Self::Oom(row) | Self::Event(_, row) => Some(row),
        }
    }

    /// Formats the moment for use in a sentence.
    pub fn name(self) -> String {
        match self {
            Self::Peak => "at the peak".into(),
            Self::Reserved(_) => "when most was reserved".into(),
            Self::End => "at the end".into(),
            Self::Oom(_) => "when memory ran out".into(),
            Self::Event(number, _) => format!("after event {number}"),
        }
    }
}

/// Returns how many events PyTorch counts for this row: a free that completes immediately counts as two. Reports use
/// PyTorch's event numbers.
fn count_pytorch_events(snapshot: &Snapshot, row: usize) -> usize {
    1 + usize::from(snapshot.events.action[row] == Action::Free)
}
