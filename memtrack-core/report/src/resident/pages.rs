//! What lies on the resident pages of a process's anonymous memory: bytes of live blocks, free memory beside them, and free
//! pages.

use memtrack_model::snapshot::ResidentRange;
use std::ops::Range;

/// A live block: where it is, and which row of the caller's table it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) index: u32,
}

/// The bytes on the resident pages of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageSums {
    /// The bytes of live blocks.
    pub(super) live: u64,
    /// The other bytes on pages with live blocks.
    pub(super) beside_live: u64,
    /// The bytes of pages without a live block that a mapping covers that the program made itself.
    pub(super) mapped: u64,
    /// The bytes of the remaining pages.
    pub(super) free: u64,
}

/// A page of which at most a quarter is live.
#[derive(Debug)]
pub(super) struct SparsePage<'a> {
    /// The bytes of the page, and those of live blocks on it.
    pub(super) page_bytes: u64,
    pub(super) live_bytes: u64,
    /// The live blocks on the page, each with its bytes there.
    pub(super) blocks: &'a [(Block, u64)],
}

/// The share of a page that is live at most if the page is sparse: a quarter.
const SPARSE_DIVISOR: u64 = 4;

/// Adds up what is on the resident pages of `range`. `blocks` are the live blocks, and `mapped` the program's own mappings, both
/// by address and without overlaps. Calls `sparse` for each sparse page.
pub(super) fn add_up(
    range: &ResidentRange,
    page_bytes: u64,
    blocks: &[Block],
    mapped: &[Range<u64>],
    mut sparse: impl FnMut(SparsePage<'_>),
) -> PageSums {
    let mut sums = PageSums::default();
    let mut next = blocks.partition_point(|block| block.end <= range.start);
    let mut on_page: Vec<(Block, u64)> = Vec::new();
    for (start, end) in range.runs(page_bytes) {
        let mut page = start;
        while page < end {
            while blocks.get(next).is_some_and(|block| block.end <= page) {
                next += 1;
            }
            let Some(&block) = blocks.get(next).filter(|block| block.start < end) else {
                add_free(&mut sums, page..end, mapped);
                break;
            };
            let first = block.start / page_bytes * page_bytes;
            if first > page {
                add_free(&mut sums, page..first, mapped);
                page = first;
            }
            // Pages that the block fills.
            let filled = block.end / page_bytes * page_bytes;
            if block.start <= page && filled > page {
                let until = filled.min(end);
                sums.live += until - page;
                page = until;
                continue;
            }
            on_page.clear();
            let page_end = page + page_bytes;
            for &block in blocks[next..].iter().take_while(|block| block.start < page_end) {
                // Blocks overlap where the free of one was not recorded.
                if block.end > page {
                    on_page.push((block, block.end.min(page_end) - block.start.max(page)));
                }
            }
            let live_bytes = on_page.iter().map(|(_, bytes)| bytes).sum::<u64>().min(page_bytes);
            sums.live += live_bytes;
            sums.beside_live += page_bytes - live_bytes;
            if live_bytes * SPARSE_DIVISOR <= page_bytes {
                sparse(SparsePage { page_bytes, live_bytes, blocks: &on_page });
            }
            page = page_end;
        }
    }
    sums
}

/// Adds pages without live blocks.
fn add_free(sums: &mut PageSums, pages: Range<u64>, mapped: &[Range<u64>]) {
    let first = mapped.partition_point(|one| one.end <= pages.start);
    let inside = mapped[first..].iter().take_while(|one| one.start < pages.end);
    let covered: u64 = inside.map(|one| one.end.min(pages.end) - one.start.max(pages.start)).sum();
    sums.mapped += covered;
    sums.free += pages.end - pages.start - covered;
}

/// Returns the index of the range that contains an address.
pub(super) fn containing(ranges: &[Range<u64>], address: u64) -> Option<usize> {
    let index = ranges.partition_point(|range| range.end <= address);
    ranges.get(index).filter(|range| range.start <= address).map(|_| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn range(lengths: &[u32]) -> ResidentRange {
        let pages = lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        let pages_of = Some(lengths.to_vec());
        ResidentRange {
            start: 16 * PAGE,
            end: (16 + pages) * PAGE,
            pages: pages_of,
            ..ResidentRange::default()
        }
    }

    fn block(start: u64, bytes: u64) -> Block {
        Block { start: 16 * PAGE + start, end: 16 * PAGE + start + bytes, index: 0 }
    }

    fn sums(lengths: &[u32], blocks: &[Block], mapped: &[Range<u64>]) -> (PageSums, Vec<(u64, usize)>) {
        let mut sparse = Vec::new();
        let sums = add_up(&range(lengths), PAGE, blocks, mapped, |page| {
            sparse.push((page.live_bytes, page.blocks.len()));
        });
        (sums, sparse)
    }

    #[test]
    fn pages_are_live_beside_live_or_free() {
        // Pages: 0 has two small blocks; 1 is free; 2 to 4 are filled by a block that ends on 5; 6 is not resident.
        let blocks = [block(0, 64), block(128, 64), block(2 * PAGE, 3 * PAGE + 2048), block(6 * PAGE, 64)];
        let (found, sparse) = sums(&[0, 6, 1, 1], &blocks, &[]);
        let live = 128 + 3 * PAGE + 2048;
        assert_eq!(
            found,
            PageSums { live, beside_live: PAGE - 128 + 2048, mapped: 0, free: 2 * PAGE },
            "page 7 is free as well"
        );
        assert_eq!(sparse, [(128, 2)]);
    }

    #[test]
    fn a_block_that_crosses_pages_counts_on_each() {
        let (found, sparse) = sums(&[0, 2], &[block(PAGE - 100, 200)], &[]);
        assert_eq!(found, PageSums { live: 200, beside_live: 2 * PAGE - 200, mapped: 0, free: 0 });
        assert_eq!(sparse, [(100, 1), (100, 1)]);
        // The second page is not resident.
        let (found, _) = sums(&[0, 1, 1, 0], &[block(PAGE - 100, 200)], &[]);
        assert_eq!((found.live, found.beside_live), (100, PAGE - 100));
    }

    #[test]
    fn own_mappings_cover_free_pages_only() {
        let mapped = [16 * PAGE..18 * PAGE, 19 * PAGE..40 * PAGE];
        let (found, _) = sums(&[0, 4], &[block(0, 4096)], &mapped);
        assert_eq!(found, PageSums { live: PAGE, beside_live: 0, mapped: 2 * PAGE, free: PAGE });
    }

    #[test]
    fn a_quarter_is_sparse_and_a_byte_more_is_not() {
        assert_eq!(sums(&[0, 1], &[block(0, 1024)], &[]).1.len(), 1);
        assert_eq!(sums(&[0, 1], &[block(0, 1025)], &[]).1.len(), 0);
    }

    #[test]
    fn random_layouts_add_up_to_the_resident_pages() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let lengths: Vec<u32> = (0..2 * (1 + random(8))).map(|_| random(6) as u32).collect();
            let pages: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
            let (mut blocks, mut at) = (Vec::new(), 0);
            while at < pages * PAGE {
                let size = 1 + random(3 * PAGE);
                blocks.push(block(at, size));
                at += size + random(2 * PAGE);
            }
            let resident: u64 =
                lengths.iter().skip(1).step_by(2).map(|length| u64::from(*length) * PAGE).sum();
            let (found, _) = sums(&lengths, &blocks, &[]);
            let runs: Vec<(u64, u64)> = range(&lengths).runs(PAGE).collect();
            let on_pages = |block: &Block| -> u64 {
                runs.iter()
                    .map(|(start, end)| block.end.min(*end).saturating_sub(block.start.max(*start)))
                    .sum()
            };
            assert_eq!(found.live, blocks.iter().map(on_pages).sum::<u64>());
            assert_eq!(found.live + found.beside_live + found.free, resident);
        }
    }

    #[test]
    fn containing_range_is_found() {
        let ranges = [10..20, 30..40];
        let found = [9, 10, 19, 20, 35, 40].map(|address| containing(&ranges, address));
        assert_eq!(found, [None, Some(0), Some(0), None, Some(1), None]);
    }
}
