//! `compare`: the segments that only one of two snapshots has. A segment is identified by its address and size, so an
//! expandable segment that grew counts as one that disappeared and one that is new.

use super::blocks::Blocks;
use super::folded::Folder;
use super::inconsistencies::Inconsistencies;
use super::sink::Sink;
use super::usage::{Grouping, Usage};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct SegmentKey {
    /// The address of the segment.
    pub address: i128,
    /// The size of the segment in bytes.
    pub total_size: i128,
}

/// Returns the segments of `snapshot` that `other` does not have, sorted by address.
pub fn only_in(snapshot: &PytorchSnapshot, other: &PytorchSnapshot) -> Vec<SegmentKey> {
    let (own, other) = (segment_keys(Blocks::of(snapshot)), segment_keys(Blocks::of(other)));
    own.difference(&other).copied().collect()
}

/// Writes the addresses of the segments that only one of the two snapshots has, then their folded lines.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn compare_folded(
    before: &PytorchSnapshot,
    after: &PytorchSnapshot,
    out: &mut impl Write,
) -> io::Result<Inconsistencies> {
    let mut sink = Sink::new(out);
    for (name, one, other) in [("only_before", before, after), ("only_after", after, before)] {
        sink.push_str(name);
        sink.push_str(" = [");
        for (index, key) in only_in(one, other).into_iter().enumerate() {
            if index > 0 {
                sink.push_str(", ");
            }
            sink.push_decimal(key.address);
        }
        sink.push_str("]\n");
    }
    let mut odd = Inconsistencies::default();
    for (name, one, other) in [("only_before;", before, after), ("only_after;", after, before)] {
        let mut folder = Folder::new(one);
        for segment in unmatched_rows(one, other) {
            folder.write_segment(&mut sink, name, segment)?;
        }
        odd.extend(folder.odd);
    }
    sink.finish()?;
    Ok(odd)
}

/// Returns the usage of the segments that only `before` has, followed by the usage of those that only `after` has.
pub fn compare_usage<'a>(before: &'a PytorchSnapshot, after: &'a PytorchSnapshot) -> [Usage<'a>; 2] {
    let gone = Usage::of_segments(before, Grouping::Segment, unmatched_rows(before, after));
    let new = Usage::of_segments(after, Grouping::Segment, unmatched_rows(after, before));
    [gone, new]
}

/// Returns the rows of the segments of `snapshot` that `other` does not have, in file order.
fn unmatched_rows(snapshot: &PytorchSnapshot, other: &PytorchSnapshot) -> Vec<usize> {
    let (blocks, other) = (Blocks::of(snapshot), segment_keys(Blocks::of(other)));
    blocks.segments().filter(|&segment| !other.contains(&segment_key(blocks, segment))).collect()
}

fn segment_key(blocks: Blocks<'_>, segment: usize) -> SegmentKey {
    SegmentKey { address: blocks.address(segment), total_size: blocks.total(segment) }
}

fn segment_keys(blocks: Blocks<'_>) -> BTreeSet<SegmentKey> {
    blocks.segments().map(|segment| segment_key(blocks, segment)).collect()
}
