//! The spread of the ranks in each step, and the rank with the highest peak. Steps of different ranks are the same if
//! they have the same number; if a rank has several steps with the same number, the first one counts.

use super::digest::{RankDigest, StepDigest};
use super::rule::median;
use std::collections::BTreeMap;

/// A comparison of the steps that several ranks have in common.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Skew {
    /// The name of the steps.
    pub name: String,
    /// The steps, by number.
    pub steps: Vec<StepSkew>,
    /// The index in [`Ranks::ranks`](super::Ranks::ranks) of each rank that alone had the highest peak in some step,
    /// and the number of such steps, in descending order of that number.
    pub highest: Vec<(usize, usize)>,
}

/// The spread of the ranks in one step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepSkew {
    /// The number of the step.
    pub number: u64,
    /// The number of ranks that have the step.
    pub ranks: usize,
    /// The median of these ranks' peaks of live requested bytes in the step.
    pub median: u64,
    /// The highest of these peaks.
    pub most: u64,
    /// The rank with the highest peak, as an index into [`Ranks::ranks`](super::Ranks::ranks); `None` if several ranks
    /// have it.
    pub highest: Option<usize>,
    /// The median of the bytes that were live when the step ended.
    pub end_median: u64,
    /// The most bytes that any rank had live when the step ended.
    pub end_most: u64,
}

impl StepSkew {
    /// Returns the ratio of the highest peak to the median: 1 if all peaks are 0, and infinite if only the median is 0.
    pub fn ratio(&self) -> f64 {
        match (self.most, self.median) {
            (0, _) => 1.0,
            (most, median) => most as f64 / median as f64,
        }
    }
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
        let mut highest: Vec<(usize, usize)> = times.into_iter().collect();
        highest.sort_by_key(|&(rank, times)| (std::cmp::Reverse(times), rank));
        (!steps.is_empty()).then(|| Self { name: name.to_owned(), steps, highest })
    }

    /// Returns the step in which the ranks were furthest apart.
    pub fn worst(&self) -> Option<&StepSkew> {
        self.steps.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()).then(b.number.cmp(&a.number)))
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
    Some(StepSkew {
        number,
        ranks: ranks.len(),
        median: median(&mut peaks)?,
        most,
        highest,
        end_most: ends.iter().copied().max()?,
        end_median: median(&mut ends)?,
    })
}
