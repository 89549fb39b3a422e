//! Exact knowledge about a sum beside its samples, which narrows the estimates of its parts: the sum of the
//! parts is not above the whole, and a part is not above the rest that the recorded blocks of the other parts
//! leave.

use super::{Estimate, Sum};

/// The sum of all parts of a ranking, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The largest possible value; infinite where that is unknown.
    most: f64,
    /// Recorded bytes of all parts, each block counted once.
    recorded: f64,
    /// The share of the sampled bytes by which the parts are lowered, so that their sum is not above the whole.
    scale: f64,
}

impl Whole {
    /// A whole of unknown size.
    pub const UNKNOWN: Self = Self { most: f64::INFINITY, recorded: 0.0, scale: 1.0 };

    /// Creates the whole of the parts that add up to `all`, known not to exceed `most`.
    pub fn of(most: f64, all: &Sum) -> Self {
        if most.is_infinite() {
            return Self::UNKNOWN;
        }
        let (recorded, beyond) = (all.recorded(), all.value() - all.recorded());
        // A count below the recorded bytes is of something else, such as an earlier moment.
        let most = most.max(recorded);
        let scale = if beyond > 0.0 { ((most - recorded) / beyond).clamp(0.0, 1.0) } else { 1.0 };
        Self { most, recorded, scale }
    }

    /// Returns a part's bytes or blocks, of which `rounded` is the sum: the sum of all parts is not above the whole.
    pub fn rounded(&self, part: &Sum, rounded: u64) -> u64 {
        match self.scale < 1.0 {
            true => self.value(part).floor() as u64,
            false => rounded,
        }
    }

    fn value(&self, part: &Sum) -> f64 {
        part.recorded() + (part.value() - part.recorded()) * self.scale
    }

    /// Narrows the estimate of a part, whose samples by themselves give `estimate`.
    pub fn part(&self, estimate: Estimate, part: &Sum) -> Estimate {
        if estimate.is_exact() || self.most.is_infinite() {
            return estimate;
        }
        // Samples whose sum is above the whole are too large by one factor, which lowers the lower limit and
        // the value alike.
        let scaled = |bytes: f64| part.recorded() + (bytes - part.recorded()) * self.scale;
        let (value, low) = match self.scale < 1.0 {
            true => (self.value(part), scaled(estimate.low)),
            false => (estimate.value, estimate.low),
        };
        // The recorded bytes of the other parts belong to those.
        let most = (self.most - (self.recorded - part.recorded())).max(value);
        Estimate {
            value,
            low: low.min(value),
            high: estimate.high.min(most).max(value),
            bound: estimate.bound.min(most).max(value),
            ..estimate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(blocks: &[(f64, f64)]) -> Sum {
        let mut sum = Sum::default();
        blocks.iter().for_each(|&(bytes, weight)| sum.add(bytes, weight));
        sum
    }

    fn estimate(sum: &Sum, high: f64) -> Estimate {
        let value = sum.value();
        Estimate { value, standard_error: 1.0, low: value / 2.0, high, bound: high, counted: false }
    }

    #[test]
    fn parts_come_to_no_more_than_the_whole() {
        let parts = [sum(&[(1000.0, 1.0)]), sum(&[(10.0, 60.0)]), sum(&[(10.0, 50.0), (200.0, 1.0)])];
        let all = parts.iter().fold(Sum::default(), |all, part| all.with(part));
        let whole = Whole::of(2000.0, &all);
        let found = parts.each_ref().map(|part| whole.part(estimate(part, 5000.0), part));
        assert!(found.iter().map(|part| part.value).sum::<f64>() <= 2000.0, "{found:?}");
        assert_eq!(found[0].value, 1000.0, "always recorded blocks keep their bytes");
        // 1,010 are recorded of the others, so less remains than their estimates.
        assert_eq!(found[1].high, 2000.0 - 1210.0);
        let rounded = parts.each_ref().map(|part| whole.rounded(part, part.value() as u64));
        assert!(rounded.iter().sum::<u64>() <= 2000, "{rounded:?}");
    }

    #[test]
    fn a_part_of_too_many_samples_keeps_its_error() {
        let part = sum(&[(10.0, 60.0), (100.0, 1.0)]);
        let whole = Whole::of(500.0, &part);
        let all = Estimate { low: 520.0, ..estimate(&part, 900.0) };
        let found = whole.part(all, &part);
        assert_eq!((found.value, found.high), (500.0, 500.0));
        assert!(found.low > 110.0 && found.low < 450.0, "{found:?}");
    }

    #[test]
    fn a_whole_above_the_sum_of_its_parts_changes_no_value() {
        let part = sum(&[(10.0, 60.0)]);
        let whole = Whole::of(700.0, &part);
        let found = whole.part(estimate(&part, 5000.0), &part);
        assert_eq!((found.value, found.high, whole.rounded(&part, 600)), (600.0, 700.0, 600));
        assert_eq!(Whole::UNKNOWN.part(estimate(&part, 5000.0), &part), estimate(&part, 5000.0));
    }
}
