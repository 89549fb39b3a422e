//! Reserved memory as pieces: what one event took from the driver, for as long as it was held. A segment is one piece;
//! an expandable one has a piece for each part that was mapped at a time. Like blocks, they are found by undoing the events
//! from what is held at the end.

use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_model::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Part of an expandable segment.
pub(crate) const EXPANDABLE: u8 = 8;

/// Memory that was held from one event to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    /// The event that took it; none: before the first.
    pub(crate) start: Option<u32>,
    /// The event that gave it back; none: held at the end.
    pub(crate) end: Option<u32>,
    /// Its first address.
    pub(crate) address: u64,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// Who took it.
    pub(crate) stack: StackId,
    /// The raw handle of its stream.
    pub(crate) stream: u64,
    /// `EXPANDABLE`.
    pub(crate) flags: u8,
    /// Its row in [`Snapshot::segments`], if it is held at the end.
    pub(crate) held: Option<u32>,
}

/// The pieces of `device`, in the order in which they were taken. Its events are `rows` of the snapshot.
pub(crate) fn pieces(snapshot: &Snapshot, device: DeviceId, rows: &[u32]) -> Vec<Piece> {
    let mut held = Held::default();
    for (row, segment) in snapshot.segments.iter().enumerate().filter(|(_, row)| row.device == device) {
        held.insert(Piece {
            start: None,
            end: None,
            address: segment.address,
            bytes: segment.size_bytes,
            stack: segment.stack,
            stream: segment.stream.0,
            flags: if segment.is_expandable { EXPANDABLE } else { 0 },
            held: Some(row as u32),
        });
    }
    let events = &snapshot.events;
    for (event, &row) in rows.iter().enumerate().rev() {
        let (event, row) = (event as u32, row as usize);
        let range = (events.address[row], events.size_bytes[row]);
        let expandable = matches!(events.action[row], Action::SegmentMap | Action::SegmentUnmap);
        match events.action[row] {
            Action::SegmentAlloc | Action::SegmentMap => {
                held.began(range, event, Some(events.stack[row]), expandable);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                // What lies there although it was given back was taken again unseen.
                held.began(range, event, None, expandable);
                held.insert(Piece {
                    start: None,
                    end: Some(event),
                    address: range.0,
                    bytes: range.1,
                    stack: events.stack[row],
                    stream: events.stream[row].0,
                    flags: if expandable { EXPANDABLE } else { 0 },
                    held: None,
                });
            }
            _ => {}
        }
    }
    held.in_order()
}

/// What is held at the moment that the walk has reached, and what was taken after it.
#[derive(Default)]
struct Held {
    /// By first address; they do not overlap.
    now: BTreeMap<u64, Piece>,
    /// The latest first.
    taken: Vec<Piece>,
}

impl Held {
    fn insert(&mut self, piece: Piece) {
        if piece.bytes > 0 {
            // Segments of a file may overlap, which the address space cannot: the last one counts.
            self.cut(piece.address, piece.bytes);
            self.now.insert(piece.address, piece);
        }
    }

    /// What lies in a range was taken by `event`.
    fn began(&mut self, (address, bytes): (u64, u64), event: u32, stack: Option<StackId>, expandable: bool) {
        for mut piece in self.cut(address, bytes) {
            piece.start = Some(event);
            piece.stack = stack.unwrap_or(piece.stack);
            piece.flags |= if expandable { EXPANDABLE } else { 0 };
            self.taken.push(piece);
        }
    }

    /// Takes a range out, and leaves what pieces have beside it.
    fn cut(&mut self, address: u64, bytes: u64) -> Vec<Piece> {
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

    /// The pieces in the order of the stack: older than the trace first, of these what is held longest lowest.
    fn in_order(self) -> Vec<Piece> {
        let mut older: Vec<Piece> = self.now.into_values().collect();
        older.sort_by_key(|piece| (std::cmp::Reverse(piece.end.unwrap_or(u32::MAX)), piece.address));
        older.into_iter().chain(self.taken.into_iter().rev()).collect()
    }
}
