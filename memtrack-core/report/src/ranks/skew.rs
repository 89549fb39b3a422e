//! The spread of the ranks in each step, and the rank with the highest peak. Steps of different ranks are the same if
//! they have the same number; if a rank has several steps with the same number, the first one counts.

use super::digest::{RankDigest, StepDigest};
use super::rule::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// The spread between the ranks in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Skew {
    /// The name that all the steps share.
    pub name: String,
    /// The steps that at least two ranks have, by number.
    pub steps: Vec<StepSkew>,
    /// For each rank that alone had the highest peak in some step, the number of such steps, in descending order.
    pub highest: Vec<HighestRank>,
}

/// The number of steps in which a rank alone had the highest peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HighestRank {
    /// The index of the rank in `ranks`.
    pub place: usize,
    /// The number of the rank; null if it is unknown.
    pub rank: Option<u64>,
    /// The number of steps in which the rank alone had the highest peak.
    pub steps: usize,
}

/// One step, compared across all ranks that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StepSkew {
    /// The number of the step.
    pub number: u64,
    /// The number of ranks that have the step.
    pub ranks: usize,
    /// The median of the ranks' peaks of live requested bytes in the step.
    #[serde(rename = "median_bytes")]
    pub median: u64,
    /// The highest peak of live requested bytes that any rank had in the step.
    #[serde(rename = "most_bytes")]
    pub most: u64,
    /// The ratio of the highest peak to the median peak; null if the median is 0.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub ratio: f64,
    /// The index in `ranks` of the rank with the highest peak in the step; null if several ranks have it.
    pub highest: Option<usize>,
    /// The median over the ranks of the requested bytes that were live at the end of the step.
    #[serde(rename = "end_median_bytes")]
    pub end_median: u64,
    /// The most requested bytes that any rank had live at the end of the step.
    #[serde(rename = "end_most_bytes")]
    pub end_most: u64,
}

impl Skew {
    /// Compares the steps that at least two of the ranks have, or returns `None` if there are no such steps.
    pub(super) fn of(ranks: &[RankDigest], members: &[(usize, usize)]) -> Option<Self> {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for &(rank, _) in members {
            if let Some(name) = ranks[rank].step_name.as_deref() {
                *names.entry(name).or_default() += 1;
            }
        }
        let name = names.into_iter().max_by_key(|&(_, ranks)| ranks)?.0;
        let mut by_number: BTreeMap<u64, BTreeMap<usize, &StepDigest>> = BTreeMap::new();
        for &(rank, at) in members.iter().filter(|&&(rank, _)| ranks[rank].step_name.as_deref() == Some(name))
        {
            for step in &ranks[rank].devices[at].steps {
                by_number.entry(step.number).or_default().entry(rank).or_insert(step);
            }
        }
        let steps: Vec<StepSkew> = by_number
            .into_iter()
            .filter(|(_, ranks)| ranks.len() >= 2)
            .filter_map(|(number, ranks)| compare_step(number, &ranks))
            .collect();
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        for rank in steps.iter().filter_map(|step| step.highest) {
            *times.entry(rank).or_default() += 1;
        }
        let times = times.into_iter();
        let mut highest: Vec<HighestRank> =
            times.map(|(place, steps)| HighestRank { place, rank: ranks[place].rank, steps }).collect();
        highest.sort_by_key(|rank| (std::cmp::Reverse(rank.steps), rank.place));
        (!steps.is_empty()).then(|| Self { name: name.to_owned(), steps, highest })
    }

    /// Returns the step in which the ranks were furthest apart.
    pub fn worst(&self) -> Option<&StepSkew> {
        self.steps.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio).then(b.number.cmp(&a.number)))
    }
}

fn compare_step(number: u64, ranks: &BTreeMap<usize, &StepDigest>) -> Option<StepSkew> {
    let numbers = |of: fn(&StepDigest) -> u64| ranks.values().map(|step| of(step)).collect::<Vec<u64>>();
    let mut peaks = numbers(|step| step.peak_requested_bytes);
    let mut ends = numbers(|step| step.end_requested_bytes);
    let most = peaks.iter().copied().max()?;
    let mut at_most =
        ranks.iter().filter(|(_, step)| step.peak_requested_bytes == most).map(|(&rank, _)| rank);
    let highest = at_most.next().filter(|_| at_most.next().is_none());
    let median_peak = median(&mut peaks)?;
    Some(StepSkew {
        number,
        ranks: ranks.len(),
        median: median_peak,
        most,
        // JSON has null for the infinite ratio to a median of 0.
        ratio: if most == 0 { 1.0 } else { most as f64 / median_peak as f64 },
        highest,
        end_most: ends.iter().copied().max()?,
        end_median: median(&mut ends)?,
    })
}
