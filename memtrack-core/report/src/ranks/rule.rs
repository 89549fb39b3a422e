//! The rule that decides which ranks are outliers. Ranks that are equal or differ only by noise are not outliers, and of
//! two ranks, neither can be identified as the outlier. A number is an outlier if its distance from the median exceeds
//! each of
//!
//! * [`DEVIATIONS`] scaled median absolute deviations (1.4826 × MAD corresponds to a standard deviation),
//! * [`SHARE`] of the median,
//! * [`MIN_BYTES`],
//!
//! and, if the number is an estimate, its error. Outliers hardly move the median as long as they are a minority.

use memtrack_blocks::estimate::Estimate;
use serde::Serialize;

/// With fewer ranks than this, none is an outlier.
pub const MIN_RANKS: usize = 3;
/// The number of scaled median absolute deviations beyond which a rank is an outlier.
pub const DEVIATIONS: f64 = 5.0;
/// The share of the median that a deviation must exceed.
pub const SHARE: f64 = 0.05;
/// The number of bytes that a deviation must exceed.
pub const MIN_BYTES: u64 = 1 << 20;

/// The ratio of a standard deviation to a median absolute deviation.
const MAD_SCALE: f64 = 1.4826;

/// The distribution of some numbers: their median and their usual distance from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Distribution {
    /// The number of ranks that have this measure.
    #[serde(rename = "ranks")]
    pub count: usize,
    /// The median of the measure over the ranks that have it, in bytes.
    #[serde(rename = "median_bytes")]
    pub median: u64,
    /// The median of the ranks' distances from `median_bytes`.
    #[serde(rename = "deviation_bytes")]
    pub deviation: u64,
    /// The distance from `median_bytes` beyond which a rank is an outlier.
    #[serde(rename = "tolerance_bytes")]
    pub tolerance: u64,
    /// The smallest value of the measure in any rank, in bytes.
    #[serde(rename = "least_bytes")]
    pub least: u64,
    /// The largest value of the measure in any rank, in bytes.
    #[serde(rename = "most_bytes")]
    pub most: u64,
}

impl Distribution {
    /// Computes the distribution of `numbers`, or returns `None` if there are none.
    pub fn of(numbers: &[u64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        let median = median(&mut sorted)?;
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        let mut off: Vec<u64> = sorted.iter().map(|number| number.abs_diff(median)).collect();
        let deviation = self::median(&mut off)?;
        let by_spread = deviation as f64 * MAD_SCALE * DEVIATIONS;
        let tolerance = MIN_BYTES.max(by_spread as u64).max((median as f64 * SHARE) as u64);
        Some(Self { count: numbers.len(), median, deviation, tolerance, least, most })
    }

    /// Returns whether `number` is an outlier, taking its error into account.
    pub fn is_outlier(&self, number: u64, error: &Estimate) -> bool {
        let off = number.abs_diff(self.median);
        let may_be_off = if error.is_exact() {
            0.0
        } else if number > self.median {
            error.value - error.low
        } else {
            error.high - error.value
        };
        self.count >= MIN_RANKS && off > self.tolerance && off as f64 > may_be_off
    }
}

/// Sorts some numbers and returns their median; for an even number of them, the mean of the two middle ones, rounded
/// down.
pub(super) fn median(numbers: &mut [u64]) -> Option<u64> {
    numbers.sort_unstable();
    let upper = numbers.get(numbers.len() / 2).copied()?;
    match numbers.len() % 2 {
        0 => Some(numbers[numbers.len() / 2 - 1].midpoint(upper)),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn find_outliers(numbers: &[u64]) -> Vec<usize> {
        let Some(distribution) = Distribution::of(numbers) else { return Vec::new() };
        let is_odd = |&at: &usize| distribution.is_outlier(numbers[at], &Estimate::exact(numbers[at] as f64));
        (0..numbers.len()).filter(is_odd).collect()
    }

    #[test]
    fn equal_ranks_and_two_ranks_have_no_outlier() {
        assert_eq!(find_outliers(&[]), [0; 0]);
        assert_eq!(find_outliers(&[7 * MIB]), [0; 0]);
        assert_eq!(find_outliers(&[MIB, 900 * MIB]), [0; 0]);
        assert_eq!(find_outliers(&[64 * MIB; 64]), [0; 0]);
        assert_eq!(find_outliers(&[0; 8]), [0; 0]);
    }

    #[test]
    fn ranks_that_hold_more_or_less_are_outliers() {
        assert_eq!(find_outliers(&[100 * MIB, 100 * MIB, 160 * MIB]), [2]);
        let mut many = vec![1000 * MIB; 64];
        many[13] = 1200 * MIB;
        many[40] = 300 * MIB;
        assert_eq!(find_outliers(&many), [13, 40]);
    }

    #[test]
    fn small_differences_are_noise() {
        assert_eq!(find_outliers(&[1000 * MIB, 1000 * MIB, 1000 * MIB, 1049 * MIB]), [0; 0]);
        assert_eq!(find_outliers(&[1000 * MIB, 1000 * MIB, 1000 * MIB, 1051 * MIB]), [3]);
        assert_eq!(find_outliers(&[1000, 1000, 1000, 900_000]), [0; 0]);
        assert_eq!(find_outliers(&[0, 0, 0, MIB + 1]), [3]);
    }

    #[test]
    fn wide_spread_raises_tolerance() {
        let spread: Vec<u64> = (0..16).map(|rank| (100 + 10 * rank) * MIB).collect();
        assert_eq!(find_outliers(&spread), [0; 0]);
        let mut one = spread;
        one[3] = 900 * MIB;
        assert_eq!(find_outliers(&one), [3]);
    }

    #[test]
    fn estimate_is_outlier_only_beyond_its_error() {
        let distribution = Distribution::of(&[100 * MIB, 100 * MIB, 100 * MIB, 150 * MIB]).unwrap();
        let of = |low: u64, high: u64| Estimate {
            counted: false,
            value: (150 * MIB) as f64,
            standard_error: 1.0,
            low: (low * MIB) as f64,
            high: (high * MIB) as f64,
            bound: (high * MIB) as f64,
        };
        assert!(distribution.is_outlier(150 * MIB, &of(140, 160)));
        assert!(!distribution.is_outlier(150 * MIB, &of(90, 210)));
    }

    #[test]
    fn largest_numbers_have_median() {
        let distribution = Distribution::of(&[u64::MAX, u64::MAX, u64::MAX - 2, 0]).unwrap();
        assert_eq!((distribution.median, distribution.least, distribution.most), (u64::MAX - 1, 0, u64::MAX));
    }
}
