//! The history of an outlier: the column from which it held more, or less, than the others.

use super::{Cells, HeatColumns, NONE};
use crate::ranks::memory::Outlier;
use memtrack_model::units::human_count;

/// A gap between columns in which a rank is an outlier is ignored if it has at most one column for each of this many
/// columns in the heat map.
const MIN_COLUMNS_PER_GAP: usize = 64;

/// An outlier's memory over time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RankHistory {
    /// The rank's index in [`Ranks::ranks`](crate::ranks::Ranks::ranks).
    pub rank: usize,
    /// Whether the rank holds more, rather than less, than the others.
    pub is_more: bool,
    /// The rank's requested bytes in each column; `None` where the rank has no value.
    pub bytes: Vec<Option<u64>>,
    /// The number of columns in which the rank is an outlier by the [rule](crate::ranks::rule), in the direction
    /// that [`Self::is_more`] states.
    pub odd_columns: usize,
    /// The first of the columns that [`Self::odd_columns`] counts.
    pub first_odd: Option<usize>,
    /// The column from which the rank is an outlier until the end; `None` if it is not an outlier at the end.
    pub since: Option<usize>,
}

impl Cells<'_> {
    /// Returns the history of the rank with index `member` in the memory's list of members.
    pub(super) fn rank_history(&self, member: usize, outlier: &Outlier) -> RankHistory {
        let own = self.series_of(member);
        let is_more = outlier.by > 0;
        let is_odd = |column: usize| {
            let above =
                self.distributions[column].is_some_and(|distribution| own[column] > distribution.median);
            above == is_more && self.is_outlier(member, column)
        };
        let present: Vec<usize> = (0..own.len()).filter(|&column| own[column] != NONE).collect();
        let odd: Vec<usize> = present.iter().copied().filter(|&column| is_odd(column)).collect();
        let gap = own.len() / MIN_COLUMNS_PER_GAP;
        let mut since = None;
        let mut reached = present.last().copied().unwrap_or(0);
        for &column in odd.iter().rev() {
            if reached - column > gap + usize::from(since.is_some()) {
                break;
            }
            (since, reached) = (Some(column), column);
        }
        RankHistory {
            rank: outlier.place,
            is_more,
            bytes: own.iter().map(|&bytes| (bytes != NONE).then_some(bytes)).collect(),
            odd_columns: odd.len(),
            first_odd: odd.first().copied(),
            since,
        }
    }
}

impl RankHistory {
    /// Describes when the rank became an outlier, in words that follow its name; `None` if it is not an outlier
    /// in any column.
    pub fn description(&self, columns: &HeatColumns) -> Option<String> {
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
