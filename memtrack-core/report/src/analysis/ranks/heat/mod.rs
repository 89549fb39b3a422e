//! Ranks over time, side by side: a row for each rank, a column for each step or time, and in each cell the
//! most live bytes. The picture is bounded: more ranks than rows share rows, more steps than columns share
//! columns, and a shared cell shows the most, so that no peak is lost. `columns` defines the columns, `course`
//! finds the time since when a rank is odd.

mod columns;
mod course;
#[cfg(test)]
mod tests;

pub use columns::HeatColumns;
pub use course::Course;

use super::Ranks;
use super::memory::{Measure, RanksMemory};
use super::rule::Middle;
use crate::analysis::estimate::Estimate;
use columns::Cutter;
use std::ops::Range;

/// The most columns of a heat map.
pub const MOST_COLUMNS: usize = 512;
/// The most rows of a heat map.
pub const MOST_ROWS: usize = 1024;
/// The most odd ranks whose course is reported.
pub const MOST_COURSES: usize = 64;
/// Marks a rank without a value in a column.
const NONE: u64 = u64::MAX;

/// One kind of memory in all ranks over time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeatMap {
    /// The kind of the columns.
    pub columns: HeatColumns,
    /// The usual level of each column: the median over all ranks that have it. None where no rank has it.
    pub middles: Vec<Option<Middle>>,
    /// For each column the least and the most among the ranks that are not odd in their peak or end.
    pub usual: Vec<Option<(u64, u64)>>,
    /// The rows, in the order of the ranks.
    pub rows: Vec<HeatRow>,
    /// The number of ranks that share a row; the last row may have fewer.
    pub ranks_per_row: usize,
    /// The most bytes in any cell.
    pub most: u64,
    /// The largest distance of a cell from the median of its column.
    pub furthest_off: u64,
    /// The ranks that are odd in their peak or end, the one that is furthest off first.
    pub courses: Vec<Course>,
}

/// A row: one rank, or some that follow one another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeatRow {
    /// The ranks, as indices into [`RanksMemory::members`].
    pub members: Range<usize>,
    /// A cell for each column; none where no rank of the row has anything there.
    pub cells: Vec<Option<HeatCell>>,
}

/// The memory of a row's ranks in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeatCell {
    /// The most requested bytes that were live in any of them.
    pub most: u64,
    /// Requested bytes of the one that is furthest off the median of the column.
    pub furthest: u64,
    /// Whether that one is off by more than the [rule](super::rule) allows, among all ranks in this column.
    pub is_odd: bool,
}

impl HeatMap {
    /// Computes the heat map of `memory` in `ranks`, with at most this many columns and rows.
    pub fn of(ranks: &Ranks, memory: &RanksMemory, columns: usize, rows: usize) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let (ranks, members) = (&ranks.ranks[..], &memory.members[..]);
        let cutter = Cutter::new(ranks, memory, columns);
        let width = cutter.columns.count();
        let mut series = Vec::with_capacity(members.len() * width);
        for &(rank, at) in members {
            cutter.cut(&ranks[rank], &ranks[rank].devices[at], &mut series);
        }
        let middles = middles(&series, width);
        // Where blocks were sampled, only the errors of the peak and the end are known.
        let is_exact = |&(rank, at): &(usize, usize)| ranks[rank].devices[at].peak.error.is_exact();
        let exact: Vec<bool> = members.iter().map(is_exact).collect();
        let cells = Cells { series: &series, width, middles: &middles, exact: &exact };
        let (courses, is_odd) = courses(memory, &cells);
        let ranks_per_row = members.len().div_ceil(rows).max(1);
        let rows: Vec<HeatRow> = (0..members.len())
            .step_by(ranks_per_row)
            .map(|first| cells.row(first..(first + ranks_per_row).min(members.len())))
            .collect();
        let all = || rows.iter().flat_map(|row| row.cells.iter().zip(&middles));
        let off = |(cell, middle): (&Option<HeatCell>, &Option<Middle>)| {
            Some((*cell)?.furthest.abs_diff((*middle)?.median))
        };
        Self {
            usual: usual(&cells, &is_odd),
            most: all().filter_map(|(cell, _)| Some((*cell)?.most)).max().unwrap_or(0),
            furthest_off: all().filter_map(off).max().unwrap_or(0),
            columns: cutter.columns,
            rows,
            ranks_per_row,
            courses,
            middles,
        }
    }

    /// Returns whether ranks share rows.
    pub fn is_folded(&self) -> bool {
        self.ranks_per_row > 1
    }
}

/// The memory of each rank in each column.
struct Cells<'a> {
    /// Rank by rank; [`NONE`] where it has nothing.
    series: &'a [u64],
    width: usize,
    middles: &'a [Option<Middle>],
    /// For each rank whether its bytes are exact.
    exact: &'a [bool],
}

impl Cells<'_> {
    fn of(&self, member: usize) -> &[u64] {
        &self.series[member * self.width..(member + 1) * self.width]
    }

    /// Applies the rule of the whole to a column.
    fn is_odd(&self, member: usize, column: usize) -> bool {
        let bytes = self.of(member)[column];
        self.exact[member]
            && bytes != NONE
            && self.middles[column]
                .is_some_and(|middle| middle.is_outlier(bytes, &Estimate::exact(bytes as f64)))
    }

    fn row(&self, members: Range<usize>) -> HeatRow {
        let cell = |column: usize| {
            let median = self.middles[column]?.median;
            let of = |member: usize| self.of(member)[column];
            let known = || members.clone().filter(|&member| of(member) != NONE);
            let most = known().map(of).max()?;
            let furthest = known().max_by_key(|&member| (of(member).abs_diff(median), of(member)))?;
            Some(HeatCell { most, furthest: of(furthest), is_odd: self.is_odd(furthest, column) })
        };
        HeatRow { cells: (0..self.width).map(cell).collect(), members }
    }
}

fn middles(series: &[u64], width: usize) -> Vec<Option<Middle>> {
    let column = |at: usize| {
        let known: Vec<u64> =
            series.iter().skip(at).step_by(width).copied().filter(|&bytes| bytes != NONE).collect();
        Middle::of(&known)
    };
    (0..width).map(column).collect()
}

/// Returns the odd ranks' courses, and for each rank whether it is one of these.
fn courses(memory: &RanksMemory, cells: &Cells<'_>) -> (Vec<Course>, Vec<bool>) {
    let mut is_odd = vec![false; memory.members.len()];
    let mut courses = Vec::new();
    for outlier in &memory.outliers {
        let by_live_bytes = matches!(outlier.measure, Measure::Peak | Measure::End);
        let member = memory.members.iter().position(|member| member.0 == outlier.rank);
        let Some(member) = member.filter(|&member| by_live_bytes && !is_odd[member]) else { continue };
        is_odd[member] = true;
        if courses.len() < MOST_COURSES {
            courses.push(cells.course(member, outlier));
        }
    }
    (courses, is_odd)
}

/// Returns the least and the most among the ranks that are not odd.
fn usual(cells: &Cells<'_>, is_odd: &[bool]) -> Vec<Option<(u64, u64)>> {
    let mut usual: Vec<Option<(u64, u64)>> = vec![None; cells.width];
    for member in (0..is_odd.len()).filter(|&member| !is_odd[member]) {
        for (range, &bytes) in usual.iter_mut().zip(cells.of(member)).filter(|(_, bytes)| **bytes != NONE) {
            let (least, most) = range.unwrap_or((bytes, bytes));
            *range = Some((least.min(bytes), most.max(bytes)));
        }
    }
    usual
}
