//! An odd rank over time: the column since which it holds more, or less, than the others.

use super::{Cells, HeatColumns, NONE};
use crate::analysis::ranks::memory::Outlier;
use memtrack_model::units::human_count;

/// A rank is odd up to the end also if it was not in one of so many columns before it.
const GAP: usize = 64;

/// An odd rank over time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Course {
    /// Its index in [`Ranks::ranks`](crate::analysis::ranks::Ranks::ranks).
    pub rank: usize,
    /// Whether it holds more than the others, rather than less.
    pub is_more: bool,
    /// Its requested bytes in each column.
    pub bytes: Vec<Option<u64>>,
    /// The number of columns in which the rule finds it odd, to that side.
    pub odd_columns: usize,
    /// The first of these.
    pub first_odd: Option<usize>,
    /// The first column of the part at the end in which it stays odd; none if it does not.
    pub since: Option<usize>,
}

impl Cells<'_> {
    /// Returns the course of the rank at `member`.
    pub(super) fn course(&self, member: usize, outlier: &Outlier) -> Course {
        let own = self.of(member);
        let is_more = outlier.by() > 0;
        let is_odd = |column: usize| {
            let above = self.middles[column].is_some_and(|middle| own[column] > middle.median);
            above == is_more && self.is_odd(member, column)
        };
        let present: Vec<usize> = (0..own.len()).filter(|&column| own[column] != NONE).collect();
        let odd: Vec<usize> = present.iter().copied().filter(|&column| is_odd(column)).collect();
        let gap = own.len() / GAP;
        let mut since = None;
        let mut reached = present.last().copied().unwrap_or(0);
        for &column in odd.iter().rev() {
            if reached - column > gap + usize::from(since.is_some()) {
                break;
            }
            (since, reached) = (Some(column), column);
        }
        Course {
            rank: outlier.rank,
            is_more,
            bytes: own.iter().map(|&bytes| (bytes != NONE).then_some(bytes)).collect(),
            odd_columns: odd.len(),
            first_odd: odd.first().copied(),
            since,
        }
    }
}

impl Course {
    /// Formats the time since when it is odd, to follow the rank's name; none if it is odd in no single column.
    pub fn words(&self, columns: &HeatColumns) -> Option<String> {
        let side = if self.is_more { "more" } else { "less" };
        let has = |column: usize| self.bytes.get(column).is_some_and(Option::is_some);
        let first = self.first_odd?;
        Some(match self.since {
            Some(since) if !(0..since).any(has) => {
                format!("holds {side} than the others from the beginning on")
            }
            Some(since) => {
                let label = columns.label(since);
                let label = label.strip_prefix("at ").unwrap_or(&label);
                format!("holds {side} than the others since {label}")
            }
            None => {
                let what =
                    if matches!(columns, HeatColumns::Steps { .. }) { "columns of steps" } else { "columns" };
                let all = self.bytes.iter().flatten().count();
                format!(
                    "holds {side} than the others in {} of {} {what}, first {}",
                    human_count(self.odd_columns as u64),
                    human_count(all as u64),
                    match columns {
                        HeatColumns::Steps { .. } => format!("in {}", columns.label(first)),
                        _ => columns.label(first),
                    }
                )
            }
        })
    }
}
