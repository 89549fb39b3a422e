//! Reserved bytes over time. They are computed backward from the segments at the end, so they are correct even if older
//! events are missing.

use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::Key;

/// A device's highest number of reserved bytes, and the moment when it was first reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservedPeak {
    /// The reserved bytes at the peak.
    pub bytes: u64,
    /// The row of the event that reached the peak; `None` if the peak was before the first event.
    pub row: Option<usize>,
}

impl ReservedPeak {
    /// Finds the peak of `device`.
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let (mut highest, mut at) = (reserved_at_start(snapshot, device), None);
        for (row, held) in reserved_levels(snapshot, device) {
            if held > highest {
                (highest, at) = (held, Some(row));
            }
        }
        Self { bytes: clamp(highest), row: at }
    }
}

/// Returns the reserved bytes of `device` before the first event, followed by the row of each event that changed them
/// and the bytes reserved after it.
pub fn reserved_over_time(
    snapshot: &Snapshot,
    device: DeviceId,
) -> (u64, impl Iterator<Item = (usize, u64)> + '_) {
    let after = reserved_levels(snapshot, device).map(|(row, held)| (row, clamp(held)));
    (clamp(reserved_at_start(snapshot, device)), after)
}

/// Returns the bytes that were reserved before the first event.
fn reserved_at_start(snapshot: &Snapshot, device: DeviceId) -> i128 {
    let changes: i128 = snapshot.events.rows_of(device).map(|row| reserved_change(snapshot, row)).sum();
    reserved_at_end(snapshot, device) - changes
}

/// Returns the rows that changed the reserved bytes, and the bytes reserved after each of them.
fn reserved_levels(snapshot: &Snapshot, device: DeviceId) -> impl Iterator<Item = (usize, i128)> + '_ {
    let mut held = reserved_at_start(snapshot, device);
    snapshot.events.rows_of(device).filter_map(move |row| {
        let change = reserved_change(snapshot, row);
        held += change;
        (change != 0).then_some((row, held))
    })
}

/// Returns whether the file contains the memory that a device holds at the end. A PyTorch file without segments has
/// events but not the state that preceded them. memtrack's own files always contain the live blocks.
pub fn has_held_bytes(snapshot: &Snapshot, device: DeviceId) -> bool {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return true };
    // Segments of pinned host memory may also be listed among the device segments.
    let has_host_segments = device == DeviceId::HOST && pytorch.has(Key::HostSegments);
    pytorch.list_only || pytorch.has(Key::Segments) || has_host_segments
}

/// Returns whether the file contains the memory that an allocator reserved for a device. A heap reserves nothing, and mapped memory is no segment.
/// PyTorch's memory profiles and memtrack's snapshots of operator traces do not contain reserved memory either. They
/// are recognized by their categories and by their segments, which only show where blocks were: there are no segment
/// events, and the allocator's own numbers for each segment are missing.
pub fn has_reserved_bytes(snapshot: &Snapshot, device: DeviceId) -> bool {
    const COUNTED_KEYS: [Key; 3] = [Key::AllocatedSize, Key::ActiveSize, Key::SegmentType];
    if !snapshot.device_kind(device).has_segments() {
        return false;
    }
    if !has_held_bytes(snapshot, device) {
        return false;
    }
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return true };
    let segments = &pytorch.segments;
    let is_counted = |row| COUNTED_KEYS.iter().any(|&key| segments.has(row, key));
    let has_categories = pytorch.events.shapes.iter().any(|shape| shape.has(Key::Category));
    !has_categories
        || segments.is_empty()
        || (0..segments.len()).any(is_counted)
        || snapshot.events.rows_of(device).any(|row| reserved_change(snapshot, row) != 0)
}

/// Returns the reserved bytes of `device` right after the event in `row` or, if `row` is `None`, before the first
/// event.
pub fn reserved_after(snapshot: &Snapshot, device: DeviceId, row: Option<usize>) -> u64 {
    let later = snapshot.events.rows_of(device).filter(|&at| row.is_none_or(|row| at > row));
    clamp(reserved_at_end(snapshot, device) - later.map(|at| reserved_change(snapshot, at)).sum::<i128>())
}

/// Returns the total bytes of the segments that `device` holds at the end.
pub fn reserved_at_end(snapshot: &Snapshot, device: DeviceId) -> i128 {
    let of_device = snapshot.segments.iter().filter(|segment| segment.device == device);
    of_device.map(|segment| i128::from(segment.size_bytes)).sum()
}

/// Returns the change in reserved bytes caused by the event in `row`; negative if memory was released.
pub fn reserved_change(snapshot: &Snapshot, row: usize) -> i128 {
    let size = i128::from(snapshot.events.size_bytes[row]);
    match snapshot.events.action[row] {
        Action::SegmentAlloc | Action::SegmentMap => size,
        Action::SegmentFree | Action::SegmentUnmap => -size,
        _ => 0,
    }
}

fn clamp(bytes: i128) -> u64 {
    u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)
}
