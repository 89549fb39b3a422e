//! `stats`: the allocated and free bytes of each segment. [`Stats`] has the numbers, and the text that it writes is
//! byte for byte the same as PyTorch's.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::number::push_size;
use super::pages::{PAGE_BYTES, Pages};
use super::sink::Sink;
use memtrack_model::answer::WideAnswer;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use serde::Serialize;
use std::io::{self, Write};

/// The sizes of a segment and its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentFill {
    /// The address of the segment.
    pub address: i128,
    /// The size of the segment in bytes.
    pub total: i128,
    /// The segment's stream as Python prints it; empty for the default stream.
    pub stream: String,
    /// The requested bytes of allocated blocks.
    pub allocated: i128,
    /// The bytes that rounding added to allocated blocks.
    pub internal: i128,
    /// The bytes of all other blocks.
    pub external: i128,
    /// The page string, with one character per 20 MiB; empty if the segment is smaller than that.
    pub pages: String,
}

/// The sizes of all segments and their blocks, with totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The segments, ordered by size and then by allocated bytes.
    pub segments: Vec<SegmentFill>,
    /// The total bytes of all segments.
    pub reserved: i128,
    /// The requested bytes of allocated blocks.
    pub allocated: i128,
    /// The bytes that rounding added to allocated blocks.
    pub internal: i128,
    /// The bytes of blocks that are not allocated.
    pub external: i128,
    /// The inconsistencies in the file.
    pub odd: Inconsistencies,
}

impl Stats {
    /// Computes the numbers for `snapshot`.
    pub fn of(snapshot: &PytorchSnapshot) -> Self {
        let blocks = Blocks::of(snapshot);
        let allocated_bytes = |segment| -> i128 {
            let active = |block: &usize| blocks.state(*block) == b"active_allocated";
            blocks.segment_blocks(segment).filter(active).map(|block| blocks.size(block)).sum()
        };
        let mut order: Vec<_> =
            blocks.segments().map(|row| (blocks.total(row), allocated_bytes(row), row)).collect();
        order.sort_by_key(|&(total, active, _)| (total, active));
        let (mut stats, mut pages, mut ranges) = (Self::default(), Pages::new(), Vec::new());
        for (total, _, row) in order {
            let fill = stats.add_segment(blocks, row, total, &mut pages, &mut ranges);
            stats.segments.push(fill);
        }
        stats
    }

    fn add_segment(
        &mut self,
        blocks: Blocks<'_>,
        row: usize,
        total: i128,
        pages: &mut Pages,
        ranges: &mut Vec<(i128, i128)>,
    ) -> SegmentFill {
        let mut fill = SegmentFill { address: blocks.address(row), total, ..SegmentFill::default() };
        ranges.clear();
        let mut offset = 0;
        for block in blocks.segment_blocks(row) {
            let size = blocks.size(block);
            if blocks.state(block) == b"active_allocated" {
                let (requested, _) = blocks.requested(block, &mut self.odd);
                ranges.push((offset, requested));
                fill.allocated += requested;
                fill.internal += size - requested;
            } else {
                fill.external += size;
            }
            offset += size;
        }
        let address = fill.address;
        let name = || format!("segment {row} at {address:#x}");
        let block_bytes = fill.external + fill.internal + fill.allocated;
        if block_bytes != total {
            let what = || format!("{} ({block_bytes} of {total} bytes)", name());
            self.odd.note("its blocks do not add up to its size; they are counted as they are", what);
        }
        if !blocks.is_default_stream(row) {
            let mut stream = Vec::new();
            blocks.push_stream(&mut stream, row);
            fill.stream = String::from_utf8_lossy(&stream).into_owned();
        }
        if total >= PAGE_BYTES {
            fill.pages = pages.draw(total, ranges, &mut self.odd, name);
        }
        self.reserved += total;
        self.allocated += fill.allocated;
        self.internal += fill.internal;
        self.external += fill.external;
        fill
    }

    /// Writes the same text as PyTorch.
    ///
    /// # Errors
    /// Fails when `out` cannot be written.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let mut sink = Sink::new(out);
        sink.push_str("Summary of segments >= ");
        sink.push_size(PAGE_BYTES);
        sink.push_str(" in size\n");
        for segment in self.segments.iter().filter(|segment| segment.total >= PAGE_BYTES) {
            sink.push_str("[");
            sink.push_str(&segment.pages);
            sink.push_str("] ");
            sink.push_size(segment.total);
            sink.push_str(" allocated, ");
            push_free(&mut sink.text, segment.external, segment.internal);
            sink.push_str(" free");
            if !segment.stream.is_empty() {
                sink.push_str(" stream_");
                sink.push_str(&segment.stream);
            }
            sink.push_str("\n");
            sink.flush_if_full()?;
        }
        sink.push_str("segments: ");
        sink.push_decimal(self.segments.len() as i128);
        for (name, bytes) in [("\ntotal_reserved: ", self.reserved), ("\ntotal_allocated: ", self.allocated)]
        {
            sink.push_str(name);
            sink.push_size(bytes);
        }
        sink.push_str("\ntotal_free: ");
        push_free(&mut sink.text, self.external, self.internal);
        sink.push_str(LEGEND);
        sink.finish()
    }

    /// Returns the numbers as `memtrack stats --json` prints them.
    pub fn answer(&self) -> StatsAnswer {
        let segment = |segment: &SegmentFill| SegmentFillAnswer {
            address: format_address(segment.address),
            stream: if segment.stream.is_empty() { "0".to_owned() } else { segment.stream.clone() },
            total_bytes: WideAnswer(segment.total),
            allocated_bytes: WideAnswer(segment.allocated),
            internal_free_bytes: WideAnswer(segment.internal),
            external_free_bytes: WideAnswer(segment.external),
        };
        StatsAnswer {
            segments: self.segments.iter().map(segment).collect(),
            total_reserved_bytes: WideAnswer(self.reserved),
            total_allocated_bytes: WideAnswer(self.allocated),
            internal_free_bytes: WideAnswer(self.internal),
            external_free_bytes: WideAnswer(self.external),
        }
    }
}

/// The sizes of all segments and their blocks, with totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StatsAnswer {
    /// The segments, ordered by size and then by allocated bytes.
    pub segments: Vec<SegmentFillAnswer>,
    /// The total bytes of all segments.
    pub total_reserved_bytes: WideAnswer,
    /// The requested bytes of the allocated blocks in all segments.
    pub total_allocated_bytes: WideAnswer,
    /// The bytes that rounding added to the allocated blocks in all segments.
    pub internal_free_bytes: WideAnswer,
    /// The bytes of the blocks in all segments that are not allocated.
    pub external_free_bytes: WideAnswer,
}

/// The sizes of a segment and its blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SegmentFillAnswer {
    /// The segment's address, as `0x…`.
    pub address: String,
    /// The segment's stream; `0` for the default stream.
    pub stream: String,
    /// The segment's size in bytes.
    pub total_bytes: WideAnswer,
    /// The requested bytes of the segment's allocated blocks.
    pub allocated_bytes: WideAnswer,
    /// The bytes that rounding added to the segment's allocated blocks.
    pub internal_free_bytes: WideAnswer,
    /// The bytes of the segment's blocks that are not allocated.
    pub external_free_bytes: WideAnswer,
}

/// Formats an address for JSON.
pub(super) fn format_address(address: i128) -> String {
    if address < 0 { address.to_string() } else { format!("{address:#x}") }
}

/// Appends the free bytes and the percentage of them that rounding added to allocated blocks.
fn push_free(out: &mut Vec<u8>, external: i128, internal: i128) {
    let total = external + internal;
    push_size(out, total);
    if total != 0 {
        let share = (100 * internal) as f64 / total as f64;
        out.extend_from_slice(format!(" ({share:.1}% internal)").as_bytes());
    }
}

/// The legend for the page strings. It is PyTorch's text and part of the format.
const LEGEND: &str = "

Legend:
    [a     ] - a segment in the allocator
     ^-- a page 20.0MiB of memory in the segment
    a-z: pages filled with a single block's content
    ' ': page is completely free
    *: page if completely full with multiple blocks
    0-9: page is partially full with tensors of multiple blocks (9 == 90% full)
    (X% internal) - of the free memory, X% is free because we rounded the size of the allocation.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_ties_to_even_as_python_does() {
        for (external, internal, text) in [
            (15, 1, "16.0B (6.2% internal)"),
            (13, 3, "16.0B (18.8% internal)"),
            (0, 0, "0.0B"),
            (4, -1, "3.0B (-33.3% internal)"),
        ] {
            let mut out = Vec::new();
            push_free(&mut out, external, internal);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
