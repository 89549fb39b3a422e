//! Sums over blocks, some of which are sampled, and the precision of a device's samples.

use super::{Estimate, KnownTotal};
use crate::lifetimes::{Lifetime, not_recorded_individually};
use crate::peak::Peak;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// The number of standard deviations beyond which 2.5 % of a normal distribution lies on each side.
const TWO_SIDED_DEVIATIONS: f64 = 1.959_964;
/// The number of standard deviations beyond which 5 % of a normal distribution lies on one side.
const ONE_SIDED_DEVIATIONS: f64 = 1.644_854;

/// A running sum over blocks, some of which are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum over recorded blocks, with each block counted once.
    recorded: f64,
    /// The sum over all blocks that the recorded ones stand for.
    value: f64,
    /// The part of [`Self::value`] that comes from samples.
    sampled: f64,
    variance: f64,
}

impl Sum {
    /// Adds a block of `amount` (its bytes, or 1 to count blocks) that stands for `weight` blocks.
    pub fn add(&mut self, amount: f64, weight: f64) {
        let value = amount * weight;
        self.recorded += amount;
        self.value += value;
        if weight > 1.0 {
            self.sampled += value;
            self.variance += value * value * (1.0 - 1.0 / weight);
        }
    }

    /// Removes a block that was added with the same arguments.
    pub fn remove(&mut self, amount: f64, weight: f64) {
        let value = amount * weight;
        self.recorded -= amount;
        self.value -= value;
        if weight > 1.0 {
            // Because of rounding, the difference between equal sums may be slightly negative.
            self.sampled = (self.sampled - value).max(0.0);
            self.variance = (self.variance - value * value * (1.0 - 1.0 / weight)).max(0.0);
        }
    }

    /// Returns the sum.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Returns the sum over recorded blocks, with each block counted once. This is a lower bound on the sum.
    pub fn recorded(&self) -> f64 {
        self.recorded
    }

    /// Returns the total of both sums.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self {
            recorded: self.recorded + other.recorded,
            value: self.value + other.value,
            sampled: self.sampled + other.sampled,
            variance: self.variance + other.variance,
        }
    }

    /// Estimates the sum. `next` is the amount that one more sample would add, and `unrecorded` is the total of
    /// everything that was not recorded; both are 0 if every block was recorded.
    fn estimate(&self, next: f64, unrecorded: f64) -> Estimate {
        self.estimate_with(next, unrecorded, TWO_SIDED_DEVIATIONS)
    }

    /// Estimates the sum at a different confidence level: the interval extends to the given number of standard
    /// deviations of a normal distribution.
    fn estimate_with(&self, next: f64, unrecorded: f64, deviations: f64) -> Estimate {
        if unrecorded <= 0.0 {
            return Estimate::exact(self.value);
        }
        let (sampled, variance) = (self.sampled, self.variance);
        let certain = self.value - sampled;
        // The average amount that each sample in this sum adds.
        let usual = if sampled > 0.0 { variance / sampled } else { 0.0 };
        let next = next.max(usual);
        let low = gamma_quantile(sampled + usual / 2.0, variance + usual * usual / 2.0, -deviations);
        let high = gamma_quantile(sampled + next / 2.0, variance + next * next / 2.0, deviations);
        let bound = gamma_quantile(sampled + next, variance + next * next, ONE_SIDED_DEVIATIONS);
        let most = self.recorded + unrecorded;
        let at_most = |limit: f64| (certain + limit).min(most).max(self.value);
        Estimate {
            value: self.value,
            standard_error: variance.sqrt(),
            low: (certain + low).max(self.recorded).min(self.value),
            high: at_most(high),
            bound: at_most(bound),
            counted: false,
        }
    }
}

/// Returns the number of standard deviations beyond which `share` of a normal distribution lies on one side. The
/// approximation is at most one percent too high (Abramowitz and Stegun, 26.2.23).
fn deviations_beyond(share: f64) -> f64 {
    let t = (-2.0 * share.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below + 4.5e-4
}

/// Returns the quantile of the gamma distribution with this mean and variance that corresponds to `deviations` standard
/// deviations in a normal distribution (Wilson and Hilferty's approximation).
fn gamma_quantile(mean: f64, variance: f64, deviations: f64) -> f64 {
    if variance <= 0.0 || mean <= 0.0 {
        return mean.max(0.0);
    }
    let shape = mean * mean / variance;
    let root = 1.0 - 1.0 / (9.0 * shape) + deviations / (3.0 * shape.sqrt());
    mean * root.max(0.0).powi(3)
}

/// The precision of one device's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Precision {
    /// The bytes and the blocks that one more sample would typically add.
    next_bytes: f64,
    next_blocks: f64,
    /// The totals of everything that was not recorded.
    unrecorded_bytes: f64,
    unrecorded_blocks: f64,
}

impl Precision {
    /// Determines the precision of the samples for `device`; `lifetimes` must be all of its lifetimes.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        let lacks = snapshot.is_heap(device) && snapshot.may_lack_small_blocks();
        let mut precision = Self::of_samples(snapshot, lacks, lifetimes);
        // If the file does not count unrecorded blocks, the exact counts of all allocations may still limit their number.
        if snapshot.sampling.is_none()
            && let Some((bytes, blocks)) = not_recorded_individually(snapshot, device, lifetimes)
        {
            precision.unrecorded_bytes = precision.unrecorded_bytes.min(bytes as f64);
            precision.unrecorded_blocks = precision.unrecorded_blocks.min(blocks as f64);
        }
        precision
    }

    fn of_samples(snapshot: &Snapshot, lacks: bool, lifetimes: &[Lifetime]) -> Self {
        let (mut bytes, mut blocks) = ((0.0, 0.0), (0.0, 0.0));
        let mut any = false;
        for lifetime in lifetimes.iter().filter(|lifetime| lifetime.estimated) {
            let (weight, size) = (lifetime.blocks, lifetime.size_bytes as f64);
            // The number of unrecorded blocks that this sample stands for.
            let missing = weight - 1.0;
            bytes = (bytes.0 + size * weight * size * missing, bytes.1 + size * missing);
            blocks = (blocks.0 + weight * missing, blocks.1 + missing);
            any = true;
        }
        if !lacks && !any {
            return Self::default();
        }
        let meta = &snapshot.meta;
        let sampling = snapshot.sampling;
        let widest =
            sampling.map_or(0, |sampling| sampling.widest_interval_bytes).max(meta.sample_mean_bytes);
        let mean = |(sum, of): (f64, f64), otherwise: f64| if of > 0.0 { sum / of } else { otherwise };
        let unrecorded = |count: fn(&memtrack_model::snapshot::Sampling) -> u64| {
            sampling.as_ref().map_or(f64::INFINITY, |sampling| count(sampling) as f64)
        };
        Self {
            next_bytes: mean(bytes, widest as f64),
            // If there are no samples, assume the smallest blocks that allocators return.
            next_blocks: mean(blocks, (widest as f64 / (16 + meta.sample_block_bytes) as f64).max(1.0)),
            unrecorded_bytes: unrecorded(|sampling| sampling.unrecorded_bytes),
            unrecorded_blocks: unrecorded(|sampling| sampling.unrecorded_blocks),
        }
    }

    /// Estimates a sum of bytes.
    pub fn bytes(&self, sum: &Sum) -> Estimate {
        sum.estimate(self.next_bytes, self.unrecorded_bytes)
    }

    /// Estimates a sum of blocks.
    pub fn blocks(&self, sum: &Sum) -> Estimate {
        sum.estimate(self.next_blocks, self.unrecorded_blocks)
    }

    /// Estimates one of many sums of bytes such that, with 95 % confidence, all of the intervals contain their true
    /// values.
    pub fn estimate_bytes_of_many(&self, sum: &Sum, deviations: f64) -> Estimate {
        sum.estimate_with(self.next_bytes, self.unrecorded_bytes, deviations)
    }

    /// Returns the `deviations` to pass to [`Self::estimate_bytes_of_many`] for `count` sums.
    pub fn deviations_of_many(count: usize) -> f64 {
        deviations_beyond(0.025 / count.max(1) as f64)
    }

    /// Returns the detection limit: a row with this many bytes in small blocks has a 5 % probability of not having any
    /// sample. It is 0 if every block was recorded.
    pub fn detection_limit_bytes(&self) -> u64 {
        // 2.996 is −ln 0.05.
        (2.996 * self.next_bytes).min(self.unrecorded_bytes).ceil() as u64
    }
}

/// Estimates sums over the blocks of one device that are live at the same moment, for reports in packages that depend
/// on this one.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    precision: Precision,
    /// The maximum number of bytes that were ever live at once.
    most_live: f64,
    of_bytes: KnownTotal,
    of_blocks: KnownTotal,
}

impl Sums {
    /// Creates the estimator for `device`; `lifetimes` must be all of its lifetimes.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        let peak = Peak::of(snapshot, device, lifetimes);
        Self {
            precision: Precision::of(snapshot, device, lifetimes),
            most_live: peak.recorded.high,
            of_bytes: KnownTotal::UNKNOWN,
            of_blocks: KnownTotal::UNKNOWN,
        }
    }

    /// Returns an estimator for parts of `all`. The total of `all` is known not to exceed `bytes` and `blocks`.
    pub fn limited_to<'a>(&self, bytes: u64, blocks: u64, all: impl Iterator<Item = &'a Lifetime>) -> Self {
        let (sum_of_bytes, sum_of_blocks) = add_up(all);
        Self {
            of_bytes: KnownTotal::of(bytes as f64, &sum_of_bytes),
            of_blocks: KnownTotal::of(blocks as f64, &sum_of_blocks),
            ..*self
        }
    }

    /// Estimates the total bytes of these blocks.
    pub fn bytes<'a>(&self, lifetimes: impl Iterator<Item = &'a Lifetime>) -> Estimate {
        self.estimate_bytes(&add_up(lifetimes).0)
    }

    /// Estimates the number of these blocks.
    pub fn blocks<'a>(&self, lifetimes: impl Iterator<Item = &'a Lifetime>) -> Estimate {
        self.estimate_blocks(&add_up(lifetimes).1)
    }

    /// Estimates the bytes and the number of these blocks; `bytes` and `blocks` are their rounded sums before the known
    /// total is taken into account.
    pub fn part<'a>(
        &self,
        lifetimes: impl Iterator<Item = &'a Lifetime>,
        bytes: u64,
        blocks: u64,
    ) -> PartSums {
        let (sum_of_bytes, sum_of_blocks) = add_up(lifetimes);
        PartSums {
            bytes: self.of_bytes.rounded(&sum_of_bytes, bytes),
            blocks: self.of_blocks.rounded(&sum_of_blocks, blocks),
            bytes_error: self.estimate_bytes(&sum_of_bytes),
            blocks_error: self.estimate_blocks(&sum_of_blocks),
        }
    }

    fn estimate_bytes(&self, sum: &Sum) -> Estimate {
        let estimate = self.precision.bytes(sum).at_most(self.most_live.max(sum.recorded));
        self.of_bytes.part(estimate, sum)
    }

    fn estimate_blocks(&self, sum: &Sum) -> Estimate {
        self.of_blocks.part(self.precision.blocks(sum), sum)
    }
}

/// The bytes and the number of some blocks, with their errors.
#[derive(Clone, Copy, Debug)]
pub struct PartSums {
    /// The bytes, at most the known total.
    pub bytes: u64,
    /// The number of blocks, at most the known total.
    pub blocks: u64,
    /// The error of the bytes.
    pub bytes_error: Estimate,
    /// The error of the number of blocks.
    pub blocks_error: Estimate,
}

/// Adds up the bytes and the number of blocks.
fn add_up<'a>(lifetimes: impl Iterator<Item = &'a Lifetime>) -> (Sum, Sum) {
    let (mut bytes, mut blocks) = (Sum::default(), Sum::default());
    for lifetime in lifetimes {
        bytes.add(lifetime.size_bytes as f64, lifetime.blocks);
        blocks.add(1.0, lifetime.blocks);
    }
    (bytes, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_have_limits_of_poisson_counts() {
        // For Poisson counts of 0, 1 and 10, the exact one-sided 95 % limits are 3.00, 4.74 and 16.96.
        for (samples, bound) in [(0, 2.97), (1, 4.73), (10, 16.96)] {
            let mut sum = Sum::default();
            (0..samples).for_each(|_| sum.add(1.0 / 1e9, 1e9));
            let estimate = sum.estimate(1.0, f64::INFINITY);
            assert!((estimate.bound - bound).abs() < 0.02, "{samples}: {}", estimate.bound);
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
        }
    }

    #[test]
    fn limits_include_recorded_bytes_and_at_most_unrecorded_ones() {
        let mut sum = Sum::default();
        sum.add(1000.0, 1.0);
        sum.add(10.0, 50.0);
        let estimate = sum.estimate(500.0, 700.0);
        assert_eq!((estimate.value, estimate.high, estimate.bound), (1500.0, 1710.0, 1710.0));
        assert!(estimate.low >= 1010.0 && estimate.low < 1100.0, "{}", estimate.low);
        assert_eq!(sum.estimate(500.0, 0.0), Estimate::exact(1500.0));
    }
}
