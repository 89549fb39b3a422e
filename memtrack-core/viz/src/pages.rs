//! The page string of a segment, in which each character shows the blocks on one 20 MiB page.

use super::inconsistencies::Inconsistencies;
use std::collections::HashMap;

/// The size of a page in bytes.
pub(super) const PAGE_BYTES: i128 = 20 << 20;

/// The maximum number of pages in one report, which is enough for segments of 2.5 PiB in total.
const MAX_PAGES: u64 = 128 << 20;
/// The maximum number of block parts in one report. A block counts once for each page that it is on.
const MAX_BLOCK_PARTS: u64 = 256 << 20;
/// The maximum number of pages in one segment that are partly filled or shared by several blocks.
const MAX_SHARED_PAGES: usize = 2 << 20;

/// A writer of page strings that stays within the limits for one report.
pub(super) struct Pages {
    /// The filled share of each page that is only partly filled, or that several blocks share. All other pages are
    /// either empty or full of a single block. Real segments have few pages here, however large they are.
    filled: HashMap<usize, f64, foldhash::fast::RandomState>,
    pages_left: u64,
    block_parts_left: u64,
}

impl Pages {
    /// Creates a writer for one report.
    pub(super) fn new() -> Self {
        Self { filled: HashMap::default(), pages_left: MAX_PAGES, block_parts_left: MAX_BLOCK_PARTS }
    }

    /// Draws the string of a segment. `ranges` holds the offset and requested size of each active block. The first
    /// block on a page puts its letter there. Once there is a second block, the page shows its filled share instead.
    pub(super) fn draw(
        &mut self,
        total: i128,
        ranges: &[(i128, i128)],
        odd: &mut Inconsistencies,
        name: impl Fn() -> String,
    ) -> String {
        let count = if total > 0 { (total - 1) / PAGE_BYTES + 1 } else { 0 };
        let block_parts: i128 = ranges.iter().map(|&(_, size)| size.max(0) / PAGE_BYTES + 2).sum();
        let subtract =
            |left: u64, number: i128| u64::try_from(number).ok().and_then(|number| left.checked_sub(number));
        let budget = subtract(self.pages_left, count).zip(subtract(self.block_parts_left, block_parts));
        let cells = budget.and_then(|budget| {
            (self.pages_left, self.block_parts_left) = budget;
            self.page_cells(count as usize, ranges, odd, &name)
        });
        cells.unwrap_or_else(|| {
            odd.note("has too many pages to draw", name);
            format!("{count} pages")
        })
    }

    /// Returns the characters of the pages, or `None` if too many pages are partly filled or shared.
    fn page_cells(
        &mut self,
        count: usize,
        ranges: &[(i128, i128)],
        odd: &mut Inconsistencies,
        name: impl Fn() -> String,
    ) -> Option<String> {
        let mut cells = vec![b' '; count];
        self.filled.clear();
        for (index, &(start, size)) in ranges.iter().enumerate() {
            let end = start + size;
            for page in start.div_euclid(PAGE_BYTES)..=(end - 1).div_euclid(PAGE_BYTES) {
                let Some(at) = usize::try_from(page).ok().filter(|&at| at < count) else {
                    odd.note("has blocks beyond its end", &name);
                    continue;
                };
                let overlap = end.min((page + 1) * PAGE_BYTES) - start.max(page * PAGE_BYTES);
                let first = cells[at] == b' ';
                if first {
                    cells[at] = b'a' + (index % 26) as u8;
                }
                if first && overlap == PAGE_BYTES {
                    continue;
                }
                if self.filled.len() >= MAX_SHARED_PAGES {
                    return None;
                }
                let filled = self.filled.entry(at).or_insert(if first { 0.0 } else { 1.0 });
                *filled += overlap as f64 / PAGE_BYTES as f64;
                if !first {
                    cells[at] = b"0123456789*"[((*filled * 10.0) as usize).min(10)];
                }
            }
        }
        String::from_utf8(cells).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw_pages(total: i128, ranges: &[(i128, i128)]) -> (String, Inconsistencies) {
        let mut odd = Inconsistencies::default();
        (Pages::new().draw(total, ranges, &mut odd, || "it".into()), odd)
    }

    #[test]
    fn page_shows_its_only_block_or_its_filled_share() {
        let half = PAGE_BYTES / 2;
        assert_eq!(draw_pages(3 * PAGE_BYTES, &[(0, half), (half, PAGE_BYTES)]).0, "*b ");
        assert_eq!(draw_pages(PAGE_BYTES, &[(0, half), (half, 1)]).0, "5");
    }

    #[test]
    fn pages_of_huge_segments_are_counted_and_not_drawn() {
        let (text, odd) = draw_pages(1 << 80, &[]);
        assert!(text.ends_with(" pages") && !odd.is_empty());
        assert!(!draw_pages(PAGE_BYTES, &[(0, 3 * PAGE_BYTES)]).1.is_empty());
    }
}
