//! The page string of a segment: a character per 20 MiB for the blocks in it.

use super::oddities::Oddities;
use std::collections::HashMap;

/// Bytes of a page.
pub(super) const PAGE: i128 = 20 << 20;

/// The most pages of one report: two segments of a petabyte and some.
const MOST_PAGES: u64 = 128 << 20;
/// The most strokes of one report, each a block on a page.
const MOST_STROKES: u64 = 256 << 20;
/// The most pages of one segment that several blocks share.
const MOST_SHARED: usize = 2 << 20;

/// Draws page strings.
pub(super) struct Pages {
    /// The filled bytes of the pages that blocks fill in part, or several blocks share. Others are empty, or
    /// full of one block: real segments have few pages here, however large they are.
    filled: HashMap<usize, f64, foldhash::fast::RandomState>,
    pages_left: u64,
    strokes_left: u64,
}

impl Pages {
    /// Creates the pages of one report.
    pub(super) fn new() -> Self {
        Self { filled: HashMap::default(), pages_left: MOST_PAGES, strokes_left: MOST_STROKES }
    }

    /// Draws the string of a segment: `ranges` are the offset and requested size of each active block. The
    /// first block on a page paints its letter; from the second on the page shows its filled share.
    pub(super) fn draw(
        &mut self,
        total: i128,
        ranges: &[(i128, i128)],
        odd: &mut Oddities,
        name: impl Fn() -> String,
    ) -> String {
        let count = if total > 0 { (total - 1) / PAGE + 1 } else { 0 };
        let strokes: i128 = ranges.iter().map(|&(_, size)| size.max(0) / PAGE + 2).sum();
        let take =
            |left: u64, number: i128| u64::try_from(number).ok().and_then(|number| left.checked_sub(number));
        let budget = take(self.pages_left, count).zip(take(self.strokes_left, strokes));
        let cells = budget.and_then(|budget| {
            (self.pages_left, self.strokes_left) = budget;
            self.cells(count as usize, ranges, odd, &name)
        });
        cells.unwrap_or_else(|| {
            odd.note("has too many pages to draw", name);
            format!("{count} pages")
        })
    }

    /// Returns `None` when too many pages are shared.
    fn cells(
        &mut self,
        count: usize,
        ranges: &[(i128, i128)],
        odd: &mut Oddities,
        name: impl Fn() -> String,
    ) -> Option<String> {
        let mut cells = vec![b' '; count];
        self.filled.clear();
        for (index, &(start, size)) in ranges.iter().enumerate() {
            let end = start + size;
            for page in start.div_euclid(PAGE)..=(end - 1).div_euclid(PAGE) {
                let Some(at) = usize::try_from(page).ok().filter(|&at| at < count) else {
                    odd.note("has blocks beyond its end", &name);
                    continue;
                };
                let overlap = end.min((page + 1) * PAGE) - start.max(page * PAGE);
                let first = cells[at] == b' ';
                if first {
                    cells[at] = b'a' + (index % 26) as u8;
                }
                if first && overlap == PAGE {
                    continue;
                }
                if self.filled.len() >= MOST_SHARED {
                    return None;
                }
                let filled = self.filled.entry(at).or_insert(if first { 0.0 } else { 1.0 });
                *filled += overlap as f64 / PAGE as f64;
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

    fn draw(total: i128, ranges: &[(i128, i128)]) -> (String, Oddities) {
        let mut odd = Oddities::default();
        (Pages::new().draw(total, ranges, &mut odd, || "it".into()), odd)
    }

    #[test]
    fn a_page_shows_its_only_block_or_how_full_it_is() {
        let half = PAGE / 2;
        assert_eq!(draw(3 * PAGE, &[(0, half), (half, PAGE)]).0, "*b ");
        assert_eq!(draw(PAGE, &[(0, half), (half, 1)]).0, "5");
    }

    #[test]
    fn endless_segments_are_counted_and_not_drawn() {
        let (text, odd) = draw(1 << 80, &[]);
        assert!(text.ends_with(" pages") && !odd.is_empty());
        assert!(!draw(PAGE, &[(0, 3 * PAGE)]).1.is_empty());
    }
}
