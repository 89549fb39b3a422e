//! The state behind the event listing: a name for each allocation and segment, and the segment that contains an
//! address. `trace` writes the listing as text, and `trace_json` writes it as JSON.
//!
//! The rules are PyTorch's, including their quirks: names are not reused, and a freed segment keeps its address range.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::intervals::Intervals;
use super::number::{event_integer, record_integer};
use super::sink::push_decimal;
use memtrack_model::event::Action;
use memtrack_model::snapshot::pytorch::Key;
use std::collections::HashMap;

/// The name of a block or segment in the listing, stored as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

impl Name {
    /// Appends the name, which is one of `a` … `z`, `a1` … `z1`, `a2` …
    pub(super) fn push(self, out: &mut Vec<u8>) {
        out.push(b'a' + (self.0 % 26) as u8);
        if self.0 >= 26 {
            push_decimal(out, (self.0 / 26).into());
        }
    }
}

/// The segment that contains an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainingSegment {
    /// A segment that the trace allocated.
    Named(Name),
    /// One of the file's segments, by its row.
    Row(u32),
    /// No known segment, so the offset is the address.
    Unknown,
}

/// The segments in the file's final state, each as an address range that is as long as the segment's allocated bytes.
/// PyTorch searches these ranges for an address if no segment in the trace contains the address.
pub(super) struct FinalSegments(Intervals);

impl FinalSegments {
    /// Collects the file's segments. If a segment has no `allocated_size`, its size is used.
    pub(super) fn of(blocks: Blocks<'_>, odd: &mut Inconsistencies) -> Self {
        let mut intervals = Intervals::default();
        let segments = &blocks.pytorch.segments;
        let mut missing = None;
        for row in blocks.segments() {
            let known = segments.has(row, Key::AllocatedSize);
            let key = if known { Key::AllocatedSize } else { Key::TotalSize };
            if !known {
                missing = missing.or(Some(row));
            }
            intervals.add(blocks.address(row), record_integer(segments, row, key));
        }
        if let Some(row) = missing.filter(|_| !blocks.snapshot.events.is_empty()) {
            odd.note("has no `allocated_size`; its size was used", || format!("segment {row}"));
        }
        Self(intervals)
    }
}

/// One decoded event of the listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) address: i128,
    pub(super) size: i128,
    /// For an `alloc` or `segment_alloc`, the new name; for any other event, the name of the block or segment that the
    /// event concerns, or `None` if it has no name.
    pub(super) name: Option<Name>,
    /// For an `alloc`, the segment that contains the block.
    pub(super) segment: ContainingSegment,
    /// For an `alloc`, the offset within that segment.
    pub(super) offset: i128,
}

/// The state of the listing for one device.
pub(super) struct Replay<'a> {
    blocks: Blocks<'a>,
    final_segments: &'a FinalSegments,
    next_name: u32,
    segments: Intervals,
    segment_names: Vec<Name>,
    named_segments: HashMap<i128, Name, foldhash::fast::RandomState>,
    named_blocks: HashMap<i128, Name, foldhash::fast::RandomState>,
}

impl<'a> Replay<'a> {
    /// Creates the state before the first event of a device.
    pub(super) fn new(blocks: Blocks<'a>, final_segments: &'a FinalSegments) -> Self {
        Self {
            blocks,
            final_segments,
            next_name: 0,
            segments: Intervals::default(),
            segment_names: Vec::new(),
            named_segments: HashMap::default(),
            named_blocks: HashMap::default(),
        }
    }

    /// Decodes the next event and updates the state.
    pub(super) fn decode_step(&mut self, row: usize) -> Step {
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
        let mut step =
            Step { action, address, size, name: None, segment: ContainingSegment::Unknown, offset: address };
        match action {
            Action::Alloc => {
                let name = self.new_name();
                self.named_blocks.insert(address, name);
                step.name = Some(name);
                (step.segment, step.offset) = self.find_segment(address);
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

    fn find_segment(&self, address: i128) -> (ContainingSegment, i128) {
        if let Some((number, start)) = self.segments.find(address) {
            return (ContainingSegment::Named(self.segment_names[number as usize]), address - start);
        }
        match self.final_segments.0.find(address) {
            Some((row, start)) => (ContainingSegment::Row(row), address - start),
            None => (ContainingSegment::Unknown, address),
        }
    }
}
