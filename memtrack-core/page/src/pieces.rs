//! Divides reserved memory into pieces. A piece is memory that one event allocated from the driver and that stayed
//! reserved until it was returned. An ordinary segment is one piece, but an expandable segment has a piece for each
//! part that was mapped by one event. Like blocks, pieces are found by starting with those that are reserved at the end
//! and undoing the events.

use crate::trace::Trace;
use memtrack_model::event::{Action, DeviceId, StackId};
use std::collections::BTreeMap;

/// The flag for a part of an expandable segment.
pub(crate) const EXPANDABLE: u8 = 8;

/// Memory that was reserved from one event to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    /// The event that allocated the piece, or `None` if it was allocated before the first event.
    pub(crate) start: Option<u32>,
    /// The event that returned the piece, or `None` if it is still reserved at the end.
    pub(crate) end: Option<u32>,
    /// The piece's first address.
    pub(crate) address: u64,
    /// The piece's size in bytes.
    pub(crate) bytes: u64,
    /// The stack that allocated the piece or, if only its return is in the trace, the stack that returned it.
    pub(crate) stack: StackId,
    /// The raw handle of the piece's stream.
    pub(crate) stream: u64,
    /// [`EXPANDABLE`] or 0.
    pub(crate) flags: u8,
}

/// Returns the pieces of `device`, in the order in which they were allocated.
pub(crate) fn find_pieces(trace: &Trace<'_>, device: DeviceId) -> Vec<Piece> {
    let snapshot = trace.snapshot;
    let mut reserved = ReservedPieces::default();
    for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
        reserved.insert(Piece {
            start: None,
            end: None,
            address: segment.address,
            bytes: segment.size_bytes,
            stack: segment.stack,
            stream: segment.stream.0,
            flags: if segment.is_expandable { EXPANDABLE } else { 0 },
        });
    }
    let events = &snapshot.events;
    for (event, row, _) in trace.events().rev() {
        let range = (events.address[row], events.size_bytes[row]);
        let expandable = matches!(events.action[row], Action::SegmentMap | Action::SegmentUnmap);
        match events.action[row] {
            Action::SegmentAlloc | Action::SegmentMap => {
                reserved.record_allocated(range, event, Some(events.stack[row]), expandable);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                // If a piece is reserved in this range after the return, the event that allocated it is not in the
                // trace, so it starts here.
                reserved.record_allocated(range, event, None, expandable);
                reserved.insert(Piece {
                    start: None,
                    end: Some(event),
                    address: range.0,
                    bytes: range.1,
                    stack: events.stack[row],
                    stream: events.stream[row].0,
                    flags: if expandable { EXPANDABLE } else { 0 },
                });
            }
            _ => {}
        }
    }
    reserved.into_ordered()
}

/// The pieces that are reserved at the current event, and those that were allocated after it.
#[derive(Default)]
struct ReservedPieces {
    /// The pieces that are reserved at the current event, keyed by first address. They do not overlap.
    now: BTreeMap<u64, Piece>,
    /// The pieces that were allocated after the current event, latest first.
    later: Vec<Piece>,
}

impl ReservedPieces {
    fn insert(&mut self, piece: Piece) {
        if piece.bytes > 0 {
            // Segments in a file may overlap, although real segments cannot. Where they do, the last one replaces the
            // others.
            self.cut_out(piece.address, piece.bytes);
            self.now.insert(piece.address, piece);
        }
    }

    /// Records that `event` allocated the pieces in a range.
    fn record_allocated(
        &mut self,
        (address, bytes): (u64, u64),
        event: u32,
        stack: Option<StackId>,
        expandable: bool,
    ) {
        for mut piece in self.cut_out(address, bytes) {
            piece.start = Some(event);
            piece.stack = stack.unwrap_or(piece.stack);
            piece.flags |= if expandable { EXPANDABLE } else { 0 };
            self.later.push(piece);
        }
    }

    /// Removes a range and returns the pieces in it. Parts of pieces outside the range stay.
    fn cut_out(&mut self, address: u64, bytes: u64) -> Vec<Piece> {
        let end = address.saturating_add(bytes);
        let mut found = Vec::new();
        let before = self.now.range(..address).next_back().map(|(&at, _)| at);
        let inside: Vec<u64> =
            before.into_iter().chain(self.now.range(address..end).map(|(&at, _)| at)).collect();
        for at in inside {
            let piece = self.now[&at];
            let last = piece.address.saturating_add(piece.bytes);
            if last <= address {
                continue;
            }
            self.now.remove(&at);
            let part = |from: u64, to: u64| Piece { address: from, bytes: to - from, ..piece };
            if piece.address < address {
                self.now.insert(piece.address, part(piece.address, address));
            }
            if last > end {
                self.now.insert(end, part(end, last));
            }
            found.push(part(piece.address.max(address), last.min(end)));
        }
        found
    }

    /// Returns the pieces in the order in which the picture stacks them. Pieces older than the trace come first, and
    /// among these, the ones that stay reserved longest are at the bottom.
    fn into_ordered(self) -> Vec<Piece> {
        let mut older: Vec<Piece> = self.now.into_values().collect();
        older.sort_by_key(|piece| (std::cmp::Reverse(piece.end.unwrap_or(u32::MAX)), piece.address));
        older.into_iter().chain(self.later.into_iter().rev()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Event, StreamId};
    use memtrack_model::snapshot::{Segment, Snapshot};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const DEVICE: DeviceId = DeviceId(0);

    type Step = (Action, u64, u64);

    fn snapshot(events: &[Step], held: &[(u64, u64)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for &(action, address, size_bytes) in events {
            snapshot.events.push(&Event { action, address, size_bytes, ..Event::BLANK });
        }
        snapshot.segments = held
            .iter()
            .map(|&(address, size_bytes)| Segment {
                device: DEVICE,
                address,
                size_bytes,
                stream: StreamId(0),
                stack: StackId::NONE,
                ticks: 0,
                is_expandable: true,
            })
            .collect();
        snapshot
    }

    fn trace(snapshot: &Snapshot) -> Trace<'_> {
        Trace::of_all(snapshot).remove(&DEVICE).unwrap_or_else(|| Trace::empty(snapshot))
    }

    fn step() -> impl Strategy<Value = Step> {
        let action = prop_oneof![
            Just(Action::SegmentAlloc),
            Just(Action::SegmentMap),
            Just(Action::SegmentFree),
            Just(Action::SegmentUnmap),
            Just(Action::Alloc),
        ];
        (action, 0..20u64, 1..8u64)
    }

    proptest! {
        #[test]
        fn reserved_pieces_match_undone_events(
            events in prop::collection::vec(step(), 0..30),
            held in prop::collection::vec((0..20u64, 1..8u64), 0..4),
        ) {
            let snapshot = snapshot(&events, &held);
            let pieces = find_pieces(&trace(&snapshot), DEVICE);
            prop_assert!(pieces.is_sorted_by_key(|piece| piece.start));
            // The reserved bytes, found by undoing the events backwards.
            let mut bytes: BTreeSet<u64> = held.iter().flat_map(|&(at, size)| at..at + size).collect();
            for event in (-1..events.len() as i64).rev() {
                let mut seen = BTreeSet::new();
                for piece in &pieces {
                    let began = piece.start.map_or(-1, i64::from) <= event;
                    if began && piece.end.is_none_or(|end| event < i64::from(end)) {
                        for byte in piece.address..piece.address + piece.bytes {
                            prop_assert!(seen.insert(byte), "two pieces hold byte {}", byte);
                        }
                    }
                }
                prop_assert_eq!(&seen, &bytes, "after event {}", event);
                let Some(&(action, at, size)) = usize::try_from(event).ok().and_then(|event| events.get(event)) else {
                    continue;
                };
                match action {
                    Action::SegmentAlloc | Action::SegmentMap => bytes.retain(|byte| !(at..at + size).contains(byte)),
                    Action::SegmentFree | Action::SegmentUnmap => bytes.extend(at..at + size),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn memory_mapped_at_one_time_is_piece() {
        use Action::{SegmentMap, SegmentUnmap};
        let events = [(SegmentMap, 0, 4), (SegmentMap, 4, 4), (SegmentUnmap, 2, 2)];
        let snapshot = snapshot(&events, &[(0, 2), (4, 4)]);
        let actual: Vec<_> = find_pieces(&trace(&snapshot), DEVICE)
            .iter()
            .map(|piece| (piece.address, piece.bytes, piece.start, piece.end))
            .collect();
        assert_eq!(actual, [(2, 2, Some(0), Some(2)), (0, 2, Some(0), None), (4, 4, Some(1), None)]);
    }
}
