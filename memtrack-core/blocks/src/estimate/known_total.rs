//! An exactly known total, which narrows the estimates of its parts: together, the parts cannot exceed the total, and
//! no part can exceed the total minus the recorded blocks of the other parts.

use super::{Estimate, Sum};

/// The total of all parts of a ranking, to the extent that it is known.
#[derive(Clone, Copy, Debug)]
pub struct KnownTotal {
    /// The largest possible total; infinite if unknown.
    most: f64,
    /// The recorded bytes of all parts, with each block counted once.
    recorded: f64,
    /// The factor by which the sampled bytes of each part are multiplied to keep the sum of the parts from exceeding
    /// the total.
    scale: f64,
}

impl KnownTotal {
    /// An unknown total, which does not narrow any estimate.
    pub const UNKNOWN: Self = Self { most: f64::INFINITY, recorded: 0.0, scale: 1.0 };

    /// Creates the total of parts that add up to `all`; the total is known not to exceed `most`.
    pub fn of(most: f64, all: &Sum) -> Self {
        if most.is_infinite() {
            return Self::UNKNOWN;
        }
        let (recorded, beyond) = (all.recorded(), all.value() - all.recorded());
        // If `most` is below the recorded bytes, it does not describe the same state: it was measured earlier, for example.
        let most = most.max(recorded);
        let scale = if beyond > 0.0 { ((most - recorded) / beyond).clamp(0.0, 1.0) } else { 1.0 };
        Self { most, recorded, scale }
    }

    /// Returns a part's bytes or blocks as an integer: `rounded`, or less if the parts would otherwise add up to more
    /// than the total.
    pub fn rounded(&self, part: &Sum, rounded: u64) -> u64 {
        match self.scale < 1.0 {
            true => self.value(part).floor() as u64,
            false => rounded,
        }
    }

    fn value(&self, part: &Sum) -> f64 {
        part.recorded() + (part.value() - part.recorded()) * self.scale
    }

    /// Narrows the estimate of a part; `estimate` is based on the samples alone.
    pub fn part(&self, estimate: Estimate, part: &Sum) -> Estimate {
        if estimate.is_exact() || self.most.is_infinite() {
            return estimate;
        }
        // If the samples add up to more than the total, all parts are too large by the same factor, which applies to
        // the lower limit as well as to the value.
        let scaled = |bytes: f64| part.recorded() + (bytes - part.recorded()) * self.scale;
        let (value, low) = match self.scale < 1.0 {
            true => (self.value(part), scaled(estimate.low)),
            false => (estimate.value, estimate.low),
        };
        // Bytes that were recorded for other parts cannot belong to this part.
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
    fn parts_add_up_to_no_more_than_total() {
        let parts = [sum(&[(1000.0, 1.0)]), sum(&[(10.0, 60.0)]), sum(&[(10.0, 50.0), (200.0, 1.0)])];
        let all = parts.iter().fold(Sum::default(), |all, part| all.with(part));
        let total = KnownTotal::of(2000.0, &all);
        let found = parts.each_ref().map(|part| total.part(estimate(part, 5000.0), part));
        assert!(found.iter().map(|part| part.value).sum::<f64>() <= 2000.0, "{found:?}");
        assert_eq!(found[0].value, 1000.0, "always recorded blocks keep their bytes");
        // The other parts have 1,210 recorded bytes, which lowers this part's upper limit.
        assert_eq!(found[1].high, 2000.0 - 1210.0);
        let rounded = parts.each_ref().map(|part| total.rounded(part, part.value() as u64));
        assert!(rounded.iter().sum::<u64>() <= 2000, "{rounded:?}");
    }

    #[test]
    fn part_of_too_many_samples_keeps_its_error() {
        let part = sum(&[(10.0, 60.0), (100.0, 1.0)]);
        let total = KnownTotal::of(500.0, &part);
        let all = Estimate { low: 520.0, ..estimate(&part, 900.0) };
        let found = total.part(all, &part);
        assert_eq!((found.value, found.high), (500.0, 500.0));
        assert!(found.low > 110.0 && found.low < 450.0, "{found:?}");
    }

    #[test]
    fn total_above_sum_of_its_parts_changes_no_value() {
        let part = sum(&[(10.0, 60.0)]);
        let total = KnownTotal::of(700.0, &part);
        let found = total.part(estimate(&part, 5000.0), &part);
        assert_eq!((found.value, found.high, total.rounded(&part, 600)), (600.0, 700.0, 600));
        assert_eq!(KnownTotal::UNKNOWN.part(estimate(&part, 5000.0), &part), estimate(&part, 5000.0));
    }
}
