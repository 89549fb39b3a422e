//! The rule that distinguishes leaks from memory that is merely alive, based on the periods of a recording
//! (docs/TESTING.md explains it).
//!
//! For each group and each period, two parts are known: the part that *stayed* (it was allocated before the end of the
//! period and lived through all of the next period) and the part that *left* (it had stayed before, and was then
//! freed). Buffers that are allocated and freed never stay; a growing vector leaves whenever it is reallocated.

/// The share of periods in which a leak must have grown: four in five.
const MIN_STEADY_SHARE: f64 = 0.8;
/// The same as [`MIN_STEADY_SHARE`], but for groups whose blocks are far older than usual: half.
const MIN_STEADY_SHARE_FOR_OLD: f64 = 0.5;
/// The maximum ratio of a leak's bytes and blocks that left to those that stayed.
const MAX_LEFT_SHARE: f64 = 0.5;
/// The growth in the last third of the periods must be at least this share of the growth in the third before it;
/// otherwise, the growth is ending.
const MIN_LATE_GROWTH_SHARE: f64 = 0.6;
/// A difference between counts that exceeds this many standard deviations is not due to chance.
const MAX_CHANCE_DEVIATIONS: f64 = 2.0;

/// A number of bytes and a number of blocks, in this order.
pub(super) type Amounts = [f64; 2];

/// The growth of a group over the periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    /// The first period in which any memory of the group stayed. Earlier periods are not judged.
    pub(super) from: usize,
    /// The number of periods in which the group grew, starting from [`Self::from`].
    pub(super) grew: usize,
    /// The number of periods, starting from [`Self::from`].
    pub(super) periods: usize,
}

/// Judges a group by its `stayed` and `left` blocks in each period. Blocks older than the first period count for that period.
/// `least` is the minimum number of periods, starting from the first one in which a block stayed. `is_old` is true if
/// the group's blocks are far older than usual. Returns `None` if the group does not leak.
pub(super) fn judge_growth(
    stayed: &[Amounts],
    left: &[Amounts],
    least: usize,
    is_old: bool,
) -> Option<Steady> {
    let from = (1..stayed.len()).find(|&period| stayed[period][1] > 0.0)?;
    let periods = stayed.len() - from;
    // Growth in two periods may be due to chance, e.g. to a task that just happens to be waiting when a snapshot is
    // taken. But three snapshots have only two periods.
    let least_growing = if stayed.len() > 3 { 3 } else { 2 };
    if periods < least.max(least_growing) {
        return None;
    }
    let net = |period: usize| [0, 1].map(|unit| stayed[period][unit] - left[period][unit]);
    // A vector that grows in place has more bytes but no more blocks, which is not growth.
    let has_grown = |period: &usize| net(*period).iter().all(|&by| by > 0.0);
    let judged = from..stayed.len();
    let grew = judged.clone().filter(has_grown).count();
    let share = if is_old { MIN_STEADY_SHARE_FOR_OLD } else { MIN_STEADY_SHARE };
    let goes_on = judged.clone().rev().take(2).any(|period| has_grown(&period));
    if (grew as f64) < share * periods as f64 || grew < least_growing || !goes_on {
        return None;
    }
    let sum = |of: &[Amounts], unit: usize| judged.clone().map(|period| of[period][unit]).sum::<f64>();
    if (0..2).any(|unit| sum(left, unit) > MAX_LEFT_SHARE * sum(stayed, unit)) {
        return None;
    }
    let third = periods / 3;
    let end = stayed.len();
    let growth_in = |range: std::ops::Range<usize>, unit: usize| range.map(|p| net(p)[unit]).sum::<f64>();
    let [before, last] = [end - 2 * third..end - third, end - third..end];
    let is_ending = (0..2)
        .all(|unit| growth_in(last.clone(), unit) < MIN_LATE_GROWTH_SHARE * growth_in(before.clone(), unit));
    let (fewer, more) = (growth_in(last, 1), growth_in(before, 1));
    if third > 0
        && is_ending
        && more - fewer > MAX_CHANCE_DEVIATIONS * (more.max(0.0) + fewer.max(0.0)).sqrt()
    {
        return None;
    }
    Some(Steady { from, grew, periods })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges ten periods, given how many blocks of 100 bytes stayed and left in each.
    fn judge(stayed: [u32; 10], left: [u32; 10]) -> Option<(usize, usize)> {
        let amounts = |blocks: [u32; 10]| blocks.map(|blocks| [f64::from(blocks) * 100.0, f64::from(blocks)]);
        judge_growth(&amounts(stayed), &amounts(left), 5, false).map(|steady| (steady.grew, steady.periods))
    }

    const NONE: [u32; 10] = [0; 10];

    #[test]
    fn blocks_that_stay_in_each_period_leak() {
        assert_eq!(judge([0, 5, 5, 5, 5, 5, 5, 5, 5, 5], NONE), Some((9, 9)));
        assert_eq!(judge([0, 1, 1, 1, 1, 1, 1, 1, 1, 1], NONE), Some((9, 9)));
        assert_eq!(judge([0, 2, 1, 0, 3, 1, 2, 1, 2, 1], NONE), Some((8, 9)));
        // The leak follows a warm-up that allocated much more, or starts only in the middle.
        assert_eq!(judge([0, 900, 5, 5, 5, 5, 5, 5, 5, 5], NONE), Some((9, 9)));
        assert_eq!(judge([0, 300, 300, 300, 5, 5, 5, 5, 5, 5], NONE), Some((9, 9)));
        assert_eq!(judge([0, 0, 0, 0, 0, 5, 5, 5, 5, 5], NONE), Some((5, 5)));
        // The leak is hidden among blocks that are freed later.
        assert_eq!(judge([0; 10].map(|_: u32| 9), [0, 0, 4, 4, 4, 4, 4, 4, 4, 4]), Some((9, 9)));
    }

    #[test]
    fn blocks_allocated_once_do_not_leak() {
        assert_eq!(judge([50, 0, 0, 0, 0, 0, 0, 0, 0, 0], NONE), None);
        assert_eq!(judge([0, 50, 0, 0, 0, 0, 0, 0, 0, 0], NONE), None);
        assert_eq!(judge([0, 0, 0, 0, 50, 0, 0, 0, 0, 0], NONE), None);
        assert_eq!(judge([0, 50, 30, 0, 2, 0, 0, 0, 0, 1], NONE), None);
    }

    #[test]
    fn cache_that_fills_does_not_leak() {
        assert_eq!(judge([0, 90, 90, 90, 90, 90, 0, 0, 0, 0], NONE), None);
        // With random keys, some keys are always missing from the cache.
        assert_eq!(judge([0, 393, 239, 145, 88, 53, 32, 20, 12, 7], NONE), None);
        assert_eq!(judge([0, 221, 172, 134, 104, 81, 63, 49, 38, 30], NONE), None);
        // A full cache frees as much as it allocates.
        assert_eq!(
            judge([0, 50, 50, 50, 50, 50, 50, 50, 50, 50], [0, 0, 0, 0, 49, 50, 50, 49, 50, 50]),
            None
        );
    }

    #[test]
    fn buffers_emptied_occasionally_do_not_leak() {
        assert_eq!(judge([0, 9, 9, 9, 9, 9, 9, 9, 9, 9], [0, 0, 0, 27, 0, 0, 27, 0, 0, 27]), None);
        assert_eq!(judge([0, 9, 9, 9, 9, 9, 9, 9, 9, 9], [0, 0, 0, 0, 0, 0, 0, 0, 0, 81]), None);
    }

    #[test]
    fn vector_that_grows_does_not_leak() {
        let stayed = [0.0, 10.0, 20.0, 0.0, 40.0, 0.0, 0.0, 80.0, 0.0, 0.0]
            .map(|bytes| [bytes, f64::from(bytes > 0.0)]);
        let left = [0.0, 0.0, 10.0, 0.0, 20.0, 0.0, 0.0, 40.0, 0.0, 0.0]
            .map(|bytes| [bytes, f64::from(bytes > 0.0)]);
        assert_eq!(judge_growth(&stayed, &left, 5, true), None);
        // A vector that is reallocated in each period does not leak either.
        let stayed: Vec<Amounts> = (0..10).map(|period| [100.0 * f64::from(period), 1.0]).collect();
        let left: Vec<Amounts> = (0..10).map(|period| [100.0 * f64::from(period - 1), 1.0]).collect();
        assert_eq!(judge_growth(&stayed, &left, 5, true), None);
    }

    #[test]
    fn groups_of_very_old_blocks_may_grow_less_often() {
        let stayed = [0, 1, 0, 1, 1, 0, 1, 0, 1, 0].map(|blocks| [f64::from(blocks), f64::from(blocks)]);
        let none = [[0.0; 2]; 10];
        assert_eq!(judge_growth(&stayed, &none, 5, false), None);
        assert_eq!(judge_growth(&stayed, &none, 5, true), Some(Steady { from: 1, grew: 5, periods: 9 }));
    }
}
