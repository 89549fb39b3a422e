//! The bookkeeping of the event listing: a letter for each allocation and segment, and the segment that an address lies
//! in. `trace` writes it as text, `trace_json` as JSON.
//!
//! The rules are PyTorch's, with their quirks: names are not reused, and a segment that was freed still has its
//! addresses.

use super::blocks::Blocks;
use super::intervals::Intervals;
use super::number::{event_integer, integer};
use super::oddities::Oddities;
use super::sink::push_decimal;
use memtrack_model::event::Action;
use memtrack_model::snapshot::pytorch::Key;
use std::collections::HashMap;

/// The number of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

impl Name {
    /// Appends `a` … `z`, `a1` … `z1`, `a2` …
    pub(super) fn push(self, out: &mut Vec<u8>) {
        out.push(b'a' + (self.0 % 26) as u8);
        if self.0 >= 26 {
            push_decimal(out, (self.0 / 26).into());
        }
    }
}

/// The segment that an allocation lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A segment that the trace allocated.
    Named(Name),
    /// One of the file's segments, by its row.
    Row(u32),
    /// An unknown segment: the offset is the address.
    Nowhere,
}

/// The segments at the end, by their allocated bytes: PyTorch looks up addresses there that the trace does not
/// contain.
pub(super) struct FinalSegments(Intervals);

impl FinalSegments {
    /// Creates the segments of a whole file; segments without `allocated_size` count with their size.
    pub(super) fn of(blocks: Blocks<'_>, odd: &mut Oddities) -> Self {
        let mut intervals = Intervals::default();
        let segments = &blocks.pytorch.segments;
        let mut missing = None;
        for row in blocks.segments() {
            let known = segments.has(row, Key::AllocatedSize);
            let key = if known { Key::AllocatedSize } else { Key::TotalSize };
            if !known {
                missing = missing.or(Some(row));
            }
            intervals.add(blocks.address(row), integer(segments, row, key));
        }
        if let Some(row) = missing.filter(|_| !blocks.snapshot.events.is_empty()) {
            odd.note("has no `allocated_size`; its size was used", || format!("segment {row}"));
        }
        Self(intervals)
    }
}

/// The meaning of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) address: i128,
    pub(super) size: i128,
    /// The new name of an `alloc` or `segment_alloc`; else the name of the event's subject.
    pub(super) name: Option<Name>,
    /// For an `alloc`: the segment, and the offset there.
    pub(super) home: Home,
    pub(super) offset: i128,
}

/// The state of one device's listing.
pub(super) struct Replay<'a> {
    blocks: Blocks<'a>,
    last: &'a FinalSegments,
    next_name: u32,
    segments: Intervals,
    segment_names: Vec<Name>,
    named_segments: HashMap<i128, Name, foldhash::fast::RandomState>,
    named_blocks: HashMap<i128, Name, foldhash::fast::RandomState>,
}

impl<'a> Replay<'a> {
    /// Creates the listing of one device.
    pub(super) fn new(blocks: Blocks<'a>, last: &'a FinalSegments) -> Self {
        Self {
            blocks,
            last,
            next_name: 0,
            segments: Intervals::default(),
            segment_names: Vec::new(),
            named_segments: HashMap::default(),
            named_blocks: HashMap::default(),
        }
    }

    /// Processes the next event.
    pub(super) fn step(&mut self, row: usize) -> Step {
        let (events, details) = (&self.blocks.snapshot.events, &self.blocks.pytorch.events);
        let number = |key, column| event_integer(self.blocks.snapshot, details, row, key, column);
        let action = events.action[row];
        let address = match action {
            Action::Oom => number(
                Key::DeviceFree,
                self.blocks.snapshot.oom_free_bytes(row).unwrap_or(events.address[row]),
            ),
            _ => number(Key::Addr, events.address[row]),
        };
        let size = number(Key::Size, events.size_bytes[row]);
        let mut step = Step { action, address, size, name: None, home: Home::Nowhere, offset: address };
        match action {
            Action::Alloc => {
                let name = self.new_name();
                self.named_blocks.insert(address, name);
                step.name = Some(name);
                (step.home, step.offset) = self.find(address);
            }
            Action::SegmentAlloc => {
                let name = self.new_name();
                self.named_segments.insert(address, name);
                self.segments.add(address, size);
                self.segment_names.push(name);
                step.name = Some(name);
            }
            Action::FreeRequested | Action::FreeCompleted | Action::Annotate => {
                step.name = self.named_blocks.get(&address).copied();
            }
            Action::SegmentFree => step.name = self.named_segments.get(&address).copied(),
            _ => {}
        }
        step
    }

    fn new_name(&mut self) -> Name {
        self.next_name += 1;
        Name(self.next_name - 1)
    }

    fn find(&self, address: i128) -> (Home, i128) {
        if let Some((number, start)) = self.segments.find(address) {
            return (Home::Named(self.segment_names[number as usize]), address - start);
        }
        match self.last.0.find(address) {
            Some((row, start)) => (Home::Row(row), address - start),
            None => (Home::Nowhere, address),
        }
    }
}
