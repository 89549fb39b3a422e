//! The page string of a segment: a character per 20 MiB that says who is in it.

use super::oddities::Oddities;

/// Bytes of a page.
pub(super) const PAGE: i128 = 20 << 20;

/// Most characters and strokes of one report: a petabyte of pages, and what a foreign file may ask for.
const MOST_STROKES: u64 = 64 << 20;

/// Draws page strings.
pub(super) struct Pages {
    cells: Vec<u8>,
    filled: Vec<f64>,
    strokes_left: u64,
}

impl Pages {
    /// For one report.
    pub(super) fn new() -> Self {
        Self { cells: Vec::new(), filled: Vec::new(), strokes_left: MOST_STROKES }
    }

    /// The string of a segment: `ranges` are the offset and requested size of each active block. The first block on a
    /// page paints its letter; from the second on the page shows how full it is.
    pub(super) fn draw(
        &mut self,
        total: i128,
        ranges: &[(i128, i128)],
        odd: &mut Oddities,
        name: impl Fn() -> String,
    ) -> String {
        let count = if total > 0 { (total - 1) / PAGE + 1 } else { 0 };
        let strokes: i128 = ranges.iter().map(|&(_, size)| size.max(0) / PAGE + 2).sum::<i128>() + count;
        let Some(left) =
            u64::try_from(strokes).ok().and_then(|strokes| self.strokes_left.checked_sub(strokes))
        else {
            odd.note("has too many pages to draw", name);
            return format!("{count} pages");
        };
        self.strokes_left = left;
        let count = count as usize;
        self.cells.clear();
        self.cells.resize(count, b' ');
        self.filled.clear();
        self.filled.resize(count, 0.0);
        for (index, &(start, size)) in ranges.iter().enumerate() {
            let end = start + size;
            for page in start.div_euclid(PAGE)..=(end - 1).div_euclid(PAGE) {
                let Some(at) = usize::try_from(page).ok().filter(|&at| at < count) else {
                    odd.note("has blocks beyond its end", &name);
                    continue;
                };
                let overlap = end.min((page + 1) * PAGE) - start.max(page * PAGE);
                self.filled[at] += overlap as f64 / PAGE as f64;
                self.cells[at] = if self.cells[at] == b' ' {
                    b'a' + (index % 26) as u8
                } else {
                    b"0123456789*"[((self.filled[at] * 10.0) as usize).min(10)]
                };
            }
        }
        String::from_utf8_lossy(&self.cells).into_owned()
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
