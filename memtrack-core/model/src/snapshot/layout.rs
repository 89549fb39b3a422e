//! The layout of a recording's segments: the live blocks on each segment and the free memory between them. A recording
//! has its segments and its blocks in separate tables, whereas PyTorch's files list the blocks of each segment.

use super::{LiveBlock, Segment};
use std::borrow::Borrow;

/// A piece of a segment: a live block, or the free memory between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first address of the piece.
    pub address: u64,
    /// The size in bytes. For a live block, this is the requested size, or less if the next block or the end of the
    /// segment is nearer.
    pub size_bytes: u64,
    /// The live block, as its index in the list that was passed to [`lay_out`]; `None` for free memory.
    pub block: Option<usize>,
}

/// Passes each segment of a device to `visit`, in order of address, together with its pieces. A live block outside all
/// segments counts as a segment that consists of this block. `segments` and `blocks` must be those of one device, each
/// sorted by address.
pub fn lay_out<B: Borrow<LiveBlock>>(
    segments: &[Segment],
    blocks: &[B],
    mut visit: impl FnMut(&Segment, &[Piece]),
) {
    let mut pieces = Vec::new();
    let mut next = 0;
    let mut visit_one = |segment: &Segment, first: usize, count: usize| {
        let end = segment.address.saturating_add(segment.size_bytes);
        divide(segment.address, end, &blocks[first..first + count], first, &mut pieces);
        visit(&Segment { size_bytes: end - segment.address, ..*segment }, &pieces);
    };
    for segment in segments {
        next += visit_outside(&blocks[next..], Some(segment), next, &mut visit_one);
        let size_bytes = segment.size_bytes.max(1);
        let is_inside = |block: &&B| (*block).borrow().address - segment.address < size_bytes;
        let count = blocks[next..].iter().take_while(is_inside).count();
        visit_one(segment, next, count);
        next += count;
    }
    visit_outside(&blocks[next..], None, next, &mut visit_one);
}

/// Visits the blocks below a segment, or all of them, as segments of their own. `first` is the index of the first block.
/// Returns their number.
fn visit_outside<B: Borrow<LiveBlock>>(
    blocks: &[B],
    below: Option<&Segment>,
    first: usize,
    visit_one: &mut impl FnMut(&Segment, usize, usize),
) -> usize {
    let is_below = |block: &&B| below.is_none_or(|segment| (*block).borrow().address < segment.address);
    let mut count = 0;
    for block in blocks.iter().take_while(is_below) {
        visit_one(&segment_of_block(block.borrow()), first + count, 1);
        count += 1;
    }
    count
}

/// Divides the memory from `start` to `end` into pieces. `first` is the index of the first of the `blocks` in it.
fn divide<B: Borrow<LiveBlock>>(start: u64, end: u64, blocks: &[B], first: usize, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut free_from = start;
    for (place, block) in blocks.iter().enumerate() {
        let block: &LiveBlock = block.borrow();
        if block.address > free_from {
            let size_bytes = block.address - free_from;
            pieces.push(Piece { address: free_from, size_bytes, block: None });
        }
        // A neighbouring block may be missing because it was not sampled, so its memory counts as free.
        let limit = blocks.get(place + 1).map_or(end, |next| next.borrow().address.min(end));
        let address = block.address.max(free_from);
        let size_bytes = block.size_bytes.min(limit.saturating_sub(address));
        pieces.push(Piece { address, size_bytes, block: Some(first + place) });
        free_from = address + size_bytes;
    }
    if end > free_from || blocks.is_empty() {
        pieces.push(Piece { address: free_from, size_bytes: end - free_from, block: None });
    }
}

/// Returns a segment that consists of a single block.
fn segment_of_block(block: &LiveBlock) -> Segment {
    Segment {
        device: block.device,
        address: block.address,
        size_bytes: block.size_bytes,
        stream: block.stream,
        stack: block.stack,
        ticks: block.ticks,
        is_expandable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    fn block(address: u64, size_bytes: u64) -> LiveBlock {
        LiveBlock::of_allocation(&Event { address, size_bytes, ..Event::BLANK })
    }

    fn segment(address: u64, size_bytes: u64) -> Segment {
        Segment { size_bytes, ..segment_of_block(&block(address, 0)) }
    }

    /// Returns each segment's address and size, with the addresses, sizes and blocks of its pieces.
    type Layout = Vec<((u64, u64), Vec<(u64, u64, Option<usize>)>)>;

    fn layout(segments: &[Segment], blocks: &[LiveBlock]) -> Layout {
        let mut found = Vec::new();
        lay_out(segments, blocks, |segment, pieces| {
            let pieces = pieces.iter().map(|piece| (piece.address, piece.size_bytes, piece.block));
            found.push(((segment.address, segment.size_bytes), pieces.collect()));
        });
        found
    }

    #[test]
    fn memory_between_blocks_is_free() {
        let segments = [segment(100, 100), segment(300, 50)];
        let blocks = [block(110, 20), block(130, 10), block(180, 15)];
        let first = [
            (100, 10, None),
            (110, 20, Some(0)),
            (130, 10, Some(1)),
            (140, 40, None),
            (180, 15, Some(2)),
            (195, 5, None),
        ];
        let expected = vec![((100, 100), first.to_vec()), ((300, 50), vec![(300, 50, None)])];
        assert_eq!(layout(&segments, &blocks), expected);
    }

    #[test]
    fn blocks_outside_segments_are_segments() {
        let blocks = [block(10, 500), block(20, 5), block(120, 1), block(900, 7)];
        let expected = vec![
            ((10, 500), vec![(10, 500, Some(0))]),
            ((20, 5), vec![(20, 5, Some(1))]),
            ((100, 50), vec![(100, 20, None), (120, 1, Some(2)), (121, 29, None)]),
            ((900, 7), vec![(900, 7, Some(3))]),
        ];
        assert_eq!(layout(&[segment(100, 50)], &blocks), expected);
    }

    #[test]
    fn blocks_end_at_next_block_and_at_end_of_segment() {
        let blocks = [block(100, 80), block(140, 80)];
        let expected = vec![((100, 100), vec![(100, 40, Some(0)), (140, 60, Some(1))])];
        assert_eq!(layout(&[segment(100, 100)], &blocks), expected);
    }
}
