//! Segments and blocks in the form that the text reports need, with exact sizes and with states as written in the file.
//! This module also implements PyTorch's rules for finding a block's requested size and stack in files from all
//! versions of PyTorch.

use super::inconsistencies::Inconsistencies;
use super::number::{record_integer, to_integer};
use super::repr::Repr;
use super::sink::push_decimal;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::{Key, PyTorch, PytorchSnapshot, Records};
use memtrack_model::snapshot::{Snapshot, Value};
use std::ops::Range;

/// The segments and blocks of one snapshot.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) pytorch: &'a PyTorch,
}

/// An entry in a block's history: one earlier allocation in the block, as written by PyTorch up to 2.0.
pub(super) struct HistoryEntry {
    pub(super) bytes: i128,
    /// The stack of the allocation, or `None` if the entry has no `frames`.
    pub(super) stack: Option<StackId>,
}

impl<'a> Blocks<'a> {
    /// Creates a view of a snapshot in PyTorch's form.
    pub(super) fn of(snapshot: &'a PytorchSnapshot) -> Self {
        Self { snapshot, pytorch: snapshot.details() }
    }

    /// Returns the rows of the segments that belong to devices rather than to pinned host memory.
    pub(super) fn segments(self) -> Range<usize> {
        0..self.pytorch.device_segments
    }

    /// Returns the rows of a segment's blocks.
    pub(super) fn segment_blocks(self, segment: usize) -> Range<usize> {
        self.pytorch.segments.rows(segment, Key::Blocks)
    }

    pub(super) fn address(self, segment: usize) -> i128 {
        record_integer(&self.pytorch.segments, segment, Key::Address)
    }

    /// Returns the size of a segment in bytes.
    pub(super) fn total(self, segment: usize) -> i128 {
        record_integer(&self.pytorch.segments, segment, Key::TotalSize)
    }

    /// Appends a segment's stream as Python prints it.
    pub(super) fn push_stream(self, out: &mut Vec<u8>, segment: usize) {
        self.push_value(out, &self.pytorch.segments, segment, Key::Stream);
    }

    /// Returns whether a segment belongs to the default stream.
    pub(super) fn is_default_stream(self, segment: usize) -> bool {
        let segments = &self.pytorch.segments;
        match segments.exact_under(segment, Key::Stream) {
            Some(value) => value.as_i128() == Some(0) || matches!(value, Value::Float(0.0)),
            None => segments.number(segment, Key::Stream) == 0,
        }
    }

    /// Appends the state of a block.
    pub(super) fn push_state(self, out: &mut Vec<u8>, block: usize) {
        self.push_value(out, &self.pytorch.blocks, block, Key::State);
    }

    pub(super) fn state(self, block: usize) -> &'a [u8] {
        self.snapshot.strings.bytes(self.pytorch.blocks.text(block, Key::State))
    }

    /// Returns the size of a block in bytes.
    pub(super) fn size(self, block: usize) -> i128 {
        record_integer(&self.pytorch.blocks, block, Key::Size)
    }

    /// Returns a block's earlier allocations, or `None` if it has no history.
    pub(super) fn history(self, block: usize) -> Option<&'a [Value]> {
        match self.pytorch.blocks.exact_under(block, Key::History)? {
            Value::List(entries) => Some(entries),
            _ => Some(&[]),
        }
    }

    /// Reads one entry in a block's history.
    pub(super) fn read_history_entry(self, entry: &Value) -> HistoryEntry {
        let mut parsed = HistoryEntry { bytes: 0, stack: None };
        let Value::Dict(entries) = entry else { return parsed };
        for (key, value) in entries.iter() {
            let Value::Str(key) = key else { continue };
            match (self.snapshot.strings.bytes(*key), value) {
                (b"real_size", value) => parsed.bytes = to_integer(value),
                (b"frames", Value::Stack(stack)) => parsed.stack = Some(*stack),
                (b"frames", _) => parsed.stack = Some(StackId::NONE),
                _ => {}
            }
        }
        parsed
    }

    /// Returns a block's requested size and stack. They come from the block itself if it has `frames`, and otherwise
    /// from the first entry in its history.
    pub(super) fn requested(self, block: usize, odd: &mut Inconsistencies) -> (i128, StackId) {
        let blocks = &self.pytorch.blocks;
        let size = || record_integer(blocks, block, Key::RequestedSize);
        if blocks.has(block, Key::Frames) {
            let stack = blocks.stack(block, Key::Frames);
            if blocks.has(block, Key::RequestedSize) {
                return (size(), stack);
            }
            odd.note("has frames but no `requested_size`; its size was used", || self.format_name(block));
            return (self.size(block), stack);
        }
        match self.history(block) {
            Some([first, ..]) => {
                let entry = self.read_history_entry(first);
                (entry.bytes, entry.stack.unwrap_or_default())
            }
            Some([]) => {
                odd.note("has a history without entries; its size was used", || self.format_name(block));
                (self.size(block), StackId::NONE)
            }
            None if blocks.has(block, Key::RequestedSize) => (size(), StackId::NONE),
            None => (self.size(block), StackId::NONE),
        }
    }

    /// Formats the name of a block for [`Inconsistencies`].
    pub(super) fn format_name(self, block: usize) -> String {
        format!("block {block} at {:#x}", self.pytorch.blocks.number(block, Key::Address))
    }

    fn push_value(self, out: &mut Vec<u8>, records: &Records, row: usize, key: Key) {
        match records.exact_under(row, key) {
            Some(value) => Repr::of(self.snapshot).write_str(out, value),
            None if key == Key::State => {
                out.extend_from_slice(self.snapshot.strings.bytes(records.text(row, key)));
            }
            None => push_decimal(out, records.number(row, key).into()),
        }
    }
}
