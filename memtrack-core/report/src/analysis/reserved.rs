//! Reserved bytes over time. The segments at the end are known, so the events are undone from there: right also when
//! older events are lost.

use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;

/// The most bytes in segments that a device held, and when it first did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservedPeak {
    /// The bytes.
    pub bytes: u64,
    /// The row of the event after which they were held; none if it was before the first event.
    pub row: Option<usize>,
}

impl ReservedPeak {
    /// The peak of `device`.
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let end: i128 = at_end(snapshot, device);
        let changes: i128 = snapshot.events.rows_of(device).map(|row| change(snapshot, row)).sum();
        let mut held = end - changes;
        let (mut highest, mut at) = (held, None);
        for row in snapshot.events.rows_of(device) {
            held += change(snapshot, row);
            if held > highest {
                (highest, at) = (held, Some(row));
            }
        }
        Self { bytes: clamped(highest), row: at }
    }
}

/// Reserved bytes of `device` right after the event in `row`; with none, before the first event.
pub fn reserved_after(snapshot: &Snapshot, device: DeviceId, row: Option<usize>) -> u64 {
    let later = snapshot.events.rows_of(device).filter(|&at| row.is_none_or(|row| at > row));
    clamped(at_end(snapshot, device) - later.map(|at| change(snapshot, at)).sum::<i128>())
}

fn at_end(snapshot: &Snapshot, device: DeviceId) -> i128 {
    let of_device = snapshot.segments.iter().filter(|segment| segment.device == device);
    of_device.map(|segment| i128::from(segment.size_bytes)).sum()
}

fn change(snapshot: &Snapshot, row: usize) -> i128 {
    let size = i128::from(snapshot.events.size_bytes[row]);
    match snapshot.events.action[row] {
        Action::SegmentAlloc | Action::SegmentMap => size,
        Action::SegmentFree | Action::SegmentUnmap => -size,
        _ => 0,
    }
}

fn clamped(bytes: i128) -> u64 {
    u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)
}
