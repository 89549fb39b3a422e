//! Ranks over time, side by side: there is a row for each rank and a column for each step or time, and each cell shows
//! the most live bytes. The size is bounded: if there are more ranks than rows or more steps than columns, several of
//! them share a row or column, and a shared cell shows the maximum so that no peak is lost. `columns` defines the
//! columns, and `history` determines when a rank became an outlier.

mod columns;
mod history;
#[cfg(test)]
mod tests;

pub use columns::HeatColumns;
pub use history::RankHistory;

use super::Ranks;
use super::memory::{Measure, RanksMemory};
use super::rule::Distribution;
use columns::Cutter;
use memtrack_blocks::estimate::Estimate;
use std::ops::Range;

/// The maximum number of columns in a heat map.
pub const MAX_COLUMNS: usize = 512;
/// The maximum number of rows in a heat map.
pub const MAX_ROWS: usize = 1024;
/// The maximum number of outliers whose memory over time is reported.
pub const MAX_HISTORIES: usize = 64;
/// The value for a rank that has no memory in a column.
const NONE: u64 = u64::MAX;

/// One kind of memory over time, in all ranks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeatMap {
    /// The meaning of the columns.
    pub columns: HeatColumns,
    /// The distribution of the ranks' bytes in each column; `None` if no rank has a value there.
    pub distributions: Vec<Option<Distribution>>,
    /// For each column, the fewest and the most bytes of those ranks that are not outliers in their peak or end; `None` if
    /// no such rank has a value there.
    pub usual: Vec<Option<(u64, u64)>>,
    /// The rows, in the order of the ranks.
    pub rows: Vec<HeatRow>,
    /// The number of ranks per row; the last row may have fewer.
    pub ranks_per_row: usize,
    /// The most bytes in any cell.
    pub most: u64,
    /// The largest distance of any cell from its column's median, in bytes.
    pub furthest_off: u64,
    /// The ranks that are outliers in their peak or end, starting with the rank furthest from the median.
    pub histories: Vec<RankHistory>,
}

/// A row: one rank, or several consecutive ranks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeatRow {
    /// The ranks, as indices into [`RanksMemory::members`].
    pub members: Range<usize>,
    /// A cell for each column; `None` if no rank in the row has a value there.
    pub cells: Vec<Option<HeatCell>>,
}

/// The memory of a row's ranks in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeatCell {
    /// The most requested bytes that were live in any of the ranks.
    pub most: u64,
    /// The requested bytes of the rank that is furthest from the column's median.
    pub furthest: u64,
    /// Whether that rank is an outlier by the [rule](super::rule), applied to all ranks in this column.
    pub is_odd: bool,
}

impl HeatMap {
    /// Computes the heat map of `memory` in `ranks`, with at most `columns` columns and `rows` rows.
    pub fn of(ranks: &Ranks, memory: &RanksMemory, columns: usize, rows: usize) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let (ranks, members) = (&ranks.ranks[..], &memory.members[..]);
        let cutter = Cutter::new(ranks, memory, columns);
        let width = cutter.columns.count();
        let mut series = Vec::with_capacity(members.len() * width);
        for &(rank, at) in members {
            cutter.cut(&ranks[rank], &ranks[rank].devices[at], &mut series);
        }
        let distributions = column_distributions(&series, width);
        // If blocks were sampled, only the errors of the peak and the end are known, so no column of the rank is judged.
        let is_exact = |&(rank, at): &(usize, usize)| ranks[rank].devices[at].peak.error.is_exact();
        let exact: Vec<bool> = members.iter().map(is_exact).collect();
        let cells = Cells { series: &series, width, distributions: &distributions, exact: &exact };
        let (histories, is_odd) = find_histories(memory, &cells);
        let ranks_per_row = members.len().div_ceil(rows).max(1);
        let rows: Vec<HeatRow> = (0..members.len())
            .step_by(ranks_per_row)
            .map(|first| cells.build_row(first..(first + ranks_per_row).min(members.len())))
            .collect();
        let all = || rows.iter().flat_map(|row| row.cells.iter().zip(&distributions));
        let off = |(cell, distribution): (&Option<HeatCell>, &Option<Distribution>)| {
            Some((*cell)?.furthest.abs_diff((*distribution)?.median))
        };
        Self {
            usual: usual_ranges(&cells, &is_odd),
            most: all().filter_map(|(cell, _)| Some((*cell)?.most)).max().unwrap_or(0),
            furthest_off: all().filter_map(off).max().unwrap_or(0),
            columns: cutter.columns,
            rows,
            ranks_per_row,
            histories,
            distributions,
        }
    }

    /// Returns whether ranks share rows.
    pub fn is_folded(&self) -> bool {
        self.ranks_per_row > 1
    }
}

/// The memory of each rank in each column.
struct Cells<'a> {
    /// The values of one rank after another; [`NONE`] where a rank has no value.
    series: &'a [u64],
    width: usize,
    distributions: &'a [Option<Distribution>],
    /// For each rank, whether its bytes are exact.
    exact: &'a [bool],
}

impl Cells<'_> {
    fn series_of(&self, member: usize) -> &[u64] {
        &self.series[member * self.width..(member + 1) * self.width]
    }

    /// Returns whether a rank is an outlier in a column, by the rule for peaks and ends.
    fn is_outlier(&self, member: usize, column: usize) -> bool {
        let bytes = self.series_of(member)[column];
        self.exact[member]
            && bytes != NONE
            && self.distributions[column]
                .is_some_and(|distribution| distribution.is_outlier(bytes, &Estimate::exact(bytes as f64)))
    }

    fn build_row(&self, members: Range<usize>) -> HeatRow {
        let cell = |column: usize| {
            let median = self.distributions[column]?.median;
            let of = |member: usize| self.series_of(member)[column];
            let known = || members.clone().filter(|&member| of(member) != NONE);
            let most = known().map(of).max()?;
            let furthest = known().max_by_key(|&member| (of(member).abs_diff(median), of(member)))?;
            Some(HeatCell { most, furthest: of(furthest), is_odd: self.is_outlier(furthest, column) })
        };
        HeatRow { cells: (0..self.width).map(cell).collect(), members }
    }
}

fn column_distributions(series: &[u64], width: usize) -> Vec<Option<Distribution>> {
    let column = |at: usize| {
        let known: Vec<u64> =
            series.iter().skip(at).step_by(width).copied().filter(|&bytes| bytes != NONE).collect();
        Distribution::of(&known)
    };
    (0..width).map(column).collect()
}

/// Returns the outliers' memory over time, and whether each rank is an outlier.
fn find_histories(memory: &RanksMemory, cells: &Cells<'_>) -> (Vec<RankHistory>, Vec<bool>) {
    let mut is_odd = vec![false; memory.members.len()];
    let mut histories = Vec::new();
    for outlier in &memory.outliers {
        let by_live_bytes = matches!(outlier.measure, Measure::Peak | Measure::End);
        let member = memory.members.iter().position(|member| member.0 == outlier.place);
        let Some(member) = member.filter(|&member| by_live_bytes && !is_odd[member]) else { continue };
        is_odd[member] = true;
        if histories.len() < MAX_HISTORIES {
            histories.push(cells.rank_history(member, outlier));
        }
    }
    (histories, is_odd)
}

/// Returns, for each column, the fewest and the most bytes of the ranks that are not outliers.
fn usual_ranges(cells: &Cells<'_>, is_odd: &[bool]) -> Vec<Option<(u64, u64)>> {
    let mut usual: Vec<Option<(u64, u64)>> = vec![None; cells.width];
    for member in (0..is_odd.len()).filter(|&member| !is_odd[member]) {
        for (range, &bytes) in
            usual.iter_mut().zip(cells.series_of(member)).filter(|(_, bytes)| **bytes != NONE)
        {
            let (least, most) = range.unwrap_or((bytes, bytes));
            *range = Some((least.min(bytes), most.max(bytes)));
        }
    }
    usual
}
