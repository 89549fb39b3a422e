//! How far a sum over samples can be trusted. A block of size s that was picked with chance p stands for 1/p blocks and
//! s/p bytes; the variance of such sums follows from the samples alone: Σ(1 − p)/p² for counts and Σs²(1 − p)/p² for
//! bytes, additive over rows, threads, intervals and files. With few samples the errors are skewed, and with none there
//! is no variance to see: limits come from gamma distributions, as the exact ones of Poisson counts do, and take into
//! account what the next sample would have added.
//!
//! Beside the samples there is exact knowledge, and it narrows the limits: what was recorded is there, and no row can
//! have more unrecorded blocks than all of them together.

use super::lifetimes::{Lifetime, not_one_by_one};
use memtrack_model::answer::ErrorAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::{human_bytes, human_count, human_share};

/// Standard deviations that leave 2.5 % beyond them.
const TWO_SIDED: f64 = 1.959_964;
/// And 5 %.
const ONE_SIDED: f64 = 1.644_854;
/// A relative error above which a number is shown as a bound.
pub(super) const MOST_ERROR: f64 = 0.5;

/// A number and how far off it may be. For an exact one, all fields but the error are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error, from the samples alone; 0 also where there was no sample.
    pub standard_error: f64,
    /// The lower end of the interval that holds the truth in 95 of 100 cases.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The truth is below this in 95 of 100 cases.
    pub bound: f64,
    /// Whether the lower end was counted, and not estimated: so much there was for certain, and [`Self::value`] is no more than
    /// that. The upper end is not exceeded for certain either; it is infinite where nobody knows it.
    pub counted: bool,
}

impl Estimate {
    /// An exact number.
    pub const fn exact(value: f64) -> Self {
        Self { value, standard_error: 0.0, low: value, high: value, bound: value, counted: false }
    }

    /// A number of which it was counted that it is not below `low`, and known that it is not above `high`.
    pub(super) const fn between(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low };
        Self { value: low, standard_error: 0.0, low, high, bound: high, counted: high > low }
    }

    /// Whether the number is exact.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// The same, where it is known that the number is not below `least`.
    pub(super) fn at_least(self, least: f64) -> Self {
        let Self { value, standard_error, low, high, bound, counted } = self;
        match least > high {
            true => Self::exact(least),
            false => Self {
                value: value.max(least),
                standard_error,
                low: low.max(least),
                high,
                bound: bound.max(least),
                counted: counted && low >= least,
            },
        }
    }

    /// The same, where it is known that the number is not above `most`.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        let Self { value, standard_error, low, high, bound, counted } = self;
        Self {
            value: value.min(most),
            standard_error,
            low: low.min(most),
            high: high.min(most),
            bound: bound.min(most),
            counted,
        }
    }

    /// The sum of two numbers that are off independently of one another.
    #[cfg(feature = "compare")]
    pub(super) fn plus(&self, other: &Self) -> Self {
        self.combined(other, 1.0)
    }

    /// The difference of two such numbers; it may be negative.
    pub(super) fn less(&self, other: &Self) -> Self {
        self.combined(other, -1.0)
    }

    fn combined(&self, other: &Self, sign: f64) -> Self {
        let value = self.value + sign * other.value;
        let below = |one: &Self| one.value - one.low;
        let above = |one: &Self| one.high - one.value;
        let (down, up) = match sign > 0.0 {
            true => (below(other), above(other)),
            false => (above(other), below(other)),
        };
        // What is taken away is largest where the rest is smallest; only a sum has a bound of its own.
        let high = value + above(self).hypot(up);
        let bound = match sign > 0.0 {
            true => value + (self.bound - self.value).hypot(other.bound - other.value),
            false => high,
        };
        Self {
            value,
            standard_error: self.standard_error.hypot(other.standard_error),
            low: value - below(self).hypot(down),
            high,
            bound,
            counted: false,
        }
    }

    /// The larger distance to an end of the interval, relative to the number; infinite for 0.
    pub fn relative_error(&self) -> f64 {
        if self.is_exact() {
            return 0.0;
        }
        (self.high - self.value).max(self.value - self.low) / self.value
    }

    /// The number as bytes, of which `bytes` is the exact rounding: `1.3 GiB ± 4 %`, or as a bound, `< 40.0 MiB`; what was
    /// counted as `at least 2.8 MiB, at most 3.1 MiB`.
    pub fn as_bytes(&self, bytes: u64) -> String {
        match self.percent() {
            Shown::Exact => human_bytes(bytes),
            // What may be missing does not show in so few digits.
            _ if self.is_certain() && human_bytes(self.high.ceil() as u64) == human_bytes(bytes) => {
                human_bytes(bytes)
            }
            Shown::Error(percent) => format!("{} ± {percent} %", human_bytes(bytes)),
            Shown::Bound => format!("< {}", human_bytes(self.bound.ceil() as u64)),
            Shown::Ends => self.between_ends(),
        }
    }

    /// The ends of the interval, in words. In short, where the numbers look alike, it is that number.
    fn between_ends(&self) -> String {
        let low = human_bytes(self.low.floor() as u64);
        if self.high.is_infinite() {
            return format!("at least {low}");
        }
        let high = human_bytes(self.high.ceil() as u64);
        if low == high { low } else { format!("at least {low}, at most {high}") }
    }

    /// The number as bytes of which it matters that they are not fewer: as [`Self::as_bytes`], but with a lower limit in place of
    /// an upper one.
    #[cfg(feature = "compare")]
    pub(super) fn as_bytes_from(&self, bytes: u64) -> String {
        match self.percent() {
            Shown::Bound | Shown::Ends => format!("at least {}", human_bytes(self.low.floor() as u64)),
            _ => self.as_bytes(bytes),
        }
    }

    /// How far the number, of which `bytes` is the exact rounding, is from another: `+1.3 GiB ± 4 %`, `−40.0 MiB`; where the
    /// two may be equal, the most that lies between them, `±3.0 MiB`.
    #[cfg(feature = "compare")]
    pub(super) fn as_difference(&self, bytes: u64, other: u64) -> String {
        let sign = if bytes > other { "+" } else { "−" };
        let by = self.less(&Self::exact(other as f64));
        match bytes.abs_diff(other) {
            0 if by.is_exact() => "±0 B".to_owned(),
            _ if !by.is_exact() && by.low <= 0.0 && by.high >= 0.0 => {
                format!("±{}", human_bytes(by.high.max(-by.low).ceil() as u64))
            }
            distance => {
                let (low, high) = if bytes > other { (by.low, by.high) } else { (-by.high, -by.low) };
                let by = Self { value: by.value.abs(), low, high, bound: high, ..by };
                format!("{sign}{}", by.as_bytes(distance))
            }
        }
    }

    /// The number as a `share` of something, from 0 to 1: `3.2 %`, or where the number is a bound, `< 4.0 %`. A share
    /// is off by as many percent as its number.
    pub fn as_share(&self, share: f64) -> String {
        match self.percent() {
            Shown::Bound if self.value > 0.0 => {
                format!("< {}", human_share((share * self.bound / self.value).min(1.0)))
            }
            _ => human_share(share),
        }
    }

    /// The number as a count: `23,000 ± 4 %`, or as a bound, `< 700`.
    pub fn as_count(&self, count: u64) -> String {
        // Digits that the error makes meaningless are not shown.
        let digits = |value: f64, of: f64| {
            let unit = 10_f64.powf(of.max(1.0).log10().floor());
            human_count(((value / unit).round() * unit) as u64)
        };
        match self.percent() {
            Shown::Exact => human_count(count),
            Shown::Error(percent) => {
                let off = (self.high - self.value).max(self.value - self.low);
                format!("{} ± {percent} %", digits(self.value, off))
            }
            Shown::Bound | Shown::Ends => format!("< {}", digits(self.bound * 1.05, self.bound / 10.0)),
        }
    }

    /// The same with what is counted: `23,000 ± 4 % blocks`.
    pub fn as_counted(&self, count: u64, what: &str) -> String {
        format!("{} {what}{}", self.as_count(count), if count == 1 { "" } else { "s" })
    }

    /// Whether all that the number stands for was recorded. Where small blocks are sampled, more may be missing.
    fn is_certain(&self) -> bool {
        self.standard_error == 0.0
    }

    fn percent(&self) -> Shown {
        let error = self.relative_error();
        match error {
            _ if self.is_exact() => Shown::Exact,
            _ if self.counted || self.high.is_infinite() => Shown::Ends,
            _ if error.is_nan() || error > MOST_ERROR => Shown::Bound,
            _ if error >= 0.00995 => Shown::Error(format!("{:.0}", error * 100.0)),
            _ => Shown::Error(format!("{:.1}", (error * 100.0).max(0.1))),
        }
    }

    /// How far off it may be, as answers have it; none for an exact number.
    pub fn answer(&self) -> Option<ErrorAnswer> {
        (!self.is_exact()).then(|| ErrorAnswer {
            standard_error: self.standard_error,
            low: self.low.floor() as i64,
            high: self.high.is_finite().then(|| self.high.ceil() as i64),
        })
    }
}

enum Shown {
    Exact,
    /// So many percent.
    Error(String),
    Bound,
    /// Both ends of the interval.
    Ends,
}

/// A sum over blocks, some of which are samples, while it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Over the blocks that were recorded, each for itself.
    recorded: f64,
    /// Over what they stand for.
    value: f64,
    /// Of [`Self::value`], the part that samples make.
    sampled: f64,
    variance: f64,
}

impl Sum {
    /// Adds a block that counts for `amount` and stands for `weight` blocks.
    pub fn add(&mut self, amount: f64, weight: f64) {
        let value = amount * weight;
        self.recorded += amount;
        self.value += value;
        if weight > 1.0 {
            self.sampled += value;
            self.variance += value * value * (1.0 - 1.0 / weight);
        }
    }

    /// Takes such a block out again.
    pub(super) fn take_out(&mut self, amount: f64, weight: f64) {
        let value = amount * weight;
        self.recorded -= amount;
        self.value -= value;
        if weight > 1.0 {
            // What is left of nothing may be less than nothing.
            self.sampled = (self.sampled - value).max(0.0);
            self.variance = (self.variance - value * value * (1.0 - 1.0 / weight)).max(0.0);
        }
    }

    /// What the sum comes to.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Both sums together.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self {
            recorded: self.recorded + other.recorded,
            value: self.value + other.value,
            sampled: self.sampled + other.sampled,
            variance: self.variance + other.variance,
        }
    }

    /// What the sum says where `next` is what one more sample would add and `unrecorded` all that was not recorded;
    /// both are 0 where every block was.
    fn estimate(&self, next: f64, unrecorded: f64) -> Estimate {
        self.estimate_within(next, unrecorded, TWO_SIDED)
    }

    /// The same with other ends of the interval: so many standard deviations of the normal distribution from its middle.
    fn estimate_within(&self, next: f64, unrecorded: f64, deviations: f64) -> Estimate {
        if unrecorded <= 0.0 {
            return Estimate::exact(self.value);
        }
        let (sampled, variance) = (self.sampled, self.variance);
        let certain = self.value - sampled;
        // What a sample of this row adds on average.
        let usual = if sampled > 0.0 { variance / sampled } else { 0.0 };
        let next = next.max(usual);
        let low = gamma(sampled + usual / 2.0, variance + usual * usual / 2.0, -deviations);
        let high = gamma(sampled + next / 2.0, variance + next * next / 2.0, deviations);
        let bound = gamma(sampled + next, variance + next * next, ONE_SIDED);
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

/// How many standard deviations of a normal distribution leave `share` of it beyond them on one side: a bound from above, by
/// one percent at most (Abramowitz and Stegun, 26.2.23).
fn deviations_beyond(share: f64) -> f64 {
    let t = (-2.0 * share.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below + 4.5e-4
}

/// The value of a gamma distribution with that mean and variance which lies `deviations` from its middle, in standard
/// deviations of the normal distribution that goes with it (Wilson and Hilferty).
fn gamma(mean: f64, variance: f64, deviations: f64) -> f64 {
    if variance <= 0.0 || mean <= 0.0 {
        return mean.max(0.0);
    }
    let shape = mean * mean / variance;
    let root = 1.0 - 1.0 / (9.0 * shape) + deviations / (3.0 * shape.sqrt());
    mean * root.max(0.0).powi(3)
}

/// What the samples of one device's recording can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Precision {
    /// What one more sample of a typical unrecorded byte, and of a typical unrecorded block, would add.
    next_bytes: f64,
    next_blocks: f64,
    /// All that was not recorded.
    unrecorded_bytes: f64,
    unrecorded_blocks: f64,
}

impl Precision {
    /// Of the blocks of `device`, whose lifetimes these are.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        let lacks = snapshot.is_heap(device) && snapshot.may_lack_small_blocks();
        let mut precision = Self::of_samples(snapshot, lacks, lifetimes);
        // Where nobody says what went unrecorded, the exact counts may.
        if snapshot.sampling.is_none()
            && let Some((bytes, blocks)) = not_one_by_one(snapshot, device, lifetimes)
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
            // What this sample says was not recorded.
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
            // Without any sample, blocks as small as allocators make them.
            next_blocks: mean(blocks, (widest as f64 / (16 + meta.sample_block_bytes) as f64).max(1.0)),
            unrecorded_bytes: unrecorded(|sampling| sampling.unrecorded_bytes),
            unrecorded_blocks: unrecorded(|sampling| sampling.unrecorded_blocks),
        }
    }

    /// A sum of bytes.
    pub fn bytes(&self, sum: &Sum) -> Estimate {
        sum.estimate(self.next_bytes, self.unrecorded_bytes)
    }

    /// A sum of blocks.
    pub fn blocks(&self, sum: &Sum) -> Estimate {
        sum.estimate(self.next_blocks, self.unrecorded_blocks)
    }

    /// A sum of bytes that is one of so many: all their intervals together hold the truth in 95 of 100 cases.
    pub(super) fn bytes_of_many(&self, sum: &Sum, deviations: f64) -> Estimate {
        sum.estimate_within(self.next_bytes, self.unrecorded_bytes, deviations)
    }

    /// The deviations for [`Self::bytes_of_many`] where there are `count` of them.
    pub(super) fn deviations_of_many(count: usize) -> f64 {
        deviations_beyond(0.025 / count.max(1) as f64)
    }

    /// Who allocated less than so many bytes in small blocks may have left no sample (in 5 of 100 cases); 0: every
    /// block was recorded.
    pub(super) fn detection_limit_bytes(&self) -> u64 {
        // −ln 0.05.
        (2.996 * self.next_bytes).min(self.unrecorded_bytes).ceil() as u64
    }
}

/// The errors of sums over some of a device's blocks, for reports in the packages above.
#[derive(Clone, Copy, Debug)]
pub struct Sums(Precision);

impl Sums {
    /// For `lifetimes`, which are all of `device`.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        Self(Precision::of(snapshot, device, lifetimes))
    }

    /// What the bytes of these blocks together are known to.
    pub fn bytes<'a>(&self, some: impl Iterator<Item = &'a Lifetime>) -> Estimate {
        let mut sum = Sum::default();
        some.for_each(|one| sum.add(one.size_bytes as f64, one.blocks));
        self.0.bytes(&sum)
    }

    /// What their number is known to.
    pub fn blocks<'a>(&self, some: impl Iterator<Item = &'a Lifetime>) -> Estimate {
        let mut sum = Sum::default();
        some.for_each(|one| sum.add(1.0, one.blocks));
        self.0.blocks(&sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_above_a_half_is_shown_as_a_bound() {
        let shown = |low: f64, value: f64, high: f64| {
            let estimate = Estimate { value, standard_error: 1.0, low, high, bound: high, counted: false };
            (estimate.as_bytes(value as u64), estimate.as_count(value as u64))
        };
        assert_eq!(Estimate::exact(23_456.0).as_count(23_456), "23,456");
        assert_eq!(shown(22_500.0, 23_456.0, 24_400.0), ("22.9 KiB ± 4 %".into(), "23,500 ± 4 %".into()));
        assert_eq!(shown(23_450.0, 23_456.0, 23_460.0).0, "22.9 KiB ± 0.1 %");
        assert_eq!(shown(400.0, 1000.0, 2048.0), ("< 2.0 KiB".into(), "< 2,200".into()));
        let bound = Estimate {
            value: 1000.0,
            standard_error: 1.0,
            low: 400.0,
            high: 2048.0,
            bound: 2000.0,
            counted: false,
        };
        assert_eq!((bound.as_share(0.1), bound.as_share(0.9)), ("< 20.0 %".into(), "< 100.0 %".into()));
        assert_eq!(Estimate::exact(1000.0).as_share(0.1), "10.0 %");
        assert_eq!(
            Estimate { standard_error: 0.0, value: 7.0, low: 7.0, high: 80.0, bound: 90.0, counted: false }
                .as_count(7),
            "< 95"
        );
        // What was recorded shows its bound where blocks were sampled, unless that changes no digit of it.
        let recorded = |value: f64, high: f64| {
            Estimate { value, low: value, high, bound: high, standard_error: 0.0, counted: false }
                .as_bytes(value as u64)
        };
        assert_eq!(recorded(1048576.0, 1051000.0), "1.0 MiB");
        assert_eq!(recorded(3072.0, 1_000_000.0), "< 976.6 KiB");
        assert_eq!(recorded(3072.0, 3400.0), "3.0 KiB ± 11 %");
    }

    #[cfg(feature = "compare")]
    #[test]
    fn a_difference_of_estimates_has_their_error() {
        let around = |low: f64, value: f64, high: f64| {
            let estimate = Estimate { value, low, high, bound: high, standard_error: 1.0, counted: false };
            estimate.as_difference(value as u64, 10 << 10)
        };
        assert_eq!(Estimate::exact(2048.0).as_difference(2048, 1024), "+1.0 KiB");
        assert_eq!(Estimate::exact(1024.0).as_difference(1024, 2048), "−1.0 KiB");
        assert_eq!(Estimate::exact(1024.0).as_difference(1024, 1024), "±0 B");
        assert_eq!(around(19.0 * 1024.0, 20.0 * 1024.0, 21.0 * 1024.0), "+10.0 KiB ± 10 %");
        assert_eq!(around(4.0 * 1024.0, 5.0 * 1024.0, 6.0 * 1024.0), "−5.0 KiB ± 20 %");
        assert_eq!(around(9.0 * 1024.0, 11.0 * 1024.0, 13.0 * 1024.0), "±3.0 KiB");
    }

    #[test]
    fn few_samples_have_the_limits_of_poisson_counts() {
        // The exact one-sided limits are 3.00, 4.74 and 16.96.
        for (samples, bound) in [(0, 2.97), (1, 4.73), (10, 16.96)] {
            let mut sum = Sum::default();
            (0..samples).for_each(|_| sum.add(1.0 / 1e9, 1e9));
            let estimate = sum.estimate(1.0, f64::INFINITY);
            assert!((estimate.bound - bound).abs() < 0.02, "{samples}: {}", estimate.bound);
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
        }
    }

    #[test]
    fn limits_hold_what_was_recorded_and_no_more_than_was_not() {
        let mut sum = Sum::default();
        sum.add(1000.0, 1.0);
        sum.add(10.0, 50.0);
        let estimate = sum.estimate(500.0, 700.0);
        assert_eq!((estimate.value, estimate.high, estimate.bound), (1500.0, 1710.0, 1710.0));
        assert!(estimate.low >= 1010.0 && estimate.low < 1100.0, "{}", estimate.low);
        assert_eq!(sum.estimate(500.0, 0.0), Estimate::exact(1500.0));
    }
}

/// Whether the stated intervals hold the truth as often as they say: the real sampler, the real report, and programs
/// whose sums are known.
#[cfg(test)]
mod coverage {
    use super::*;
    use crate::analysis::top::{By, TopOptions, TopRow, top};
    use memtrack_model::event::{Action, Event, EventFlags, ScopeId, interval_of_class};
    use memtrack_model::snapshot::{Sampling, Scope, ScopeKind};
    use memtrack_recorder::host::{LoneSampler, Rules};
    use std::collections::HashMap;

    const LARGE: u64 = 64 << 10;
    const ROWS: usize = 24;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, end: u64) -> u64 {
            (self.next() >> 11) % end
        }

        /// A block's size in a row of a kind: of one size, around one, over all, mostly tiny and a few larger, and with
        /// some that are always recorded.
        fn size(&mut self, kind: usize) -> u64 {
            match kind % 5 {
                0 => 64,
                1 => 16 + self.below(500),
                2 => 1 << (4 + self.below(12)),
                3 if self.below(10) > 0 => 32,
                3 => 8000 + self.below(16_000),
                _ if self.below(20) == 0 => LARGE + self.below(LARGE),
                _ => 200 + self.below(4000),
            }
        }
    }

    /// Bytes, bytes live at the peak, and blocks.
    type Numbers = [f64; 3];

    /// What one program was, and what its report said of it.
    struct Program {
        /// The truth of each row of the report, and the estimates.
        rows: Vec<(Numbers, [Estimate; 3])>,
        /// Rows of the report whose small blocks have fewer bytes than the detection limit.
        rows_below_limit: usize,
        /// What has no row, though it has more.
        missing_above_limit: usize,
    }

    fn program(seed: u64) -> Program {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut blocks: Vec<usize> = Vec::new();
        for row in 0..ROWS {
            let most = [30, 100, 300, 1000, 3000, 10_000][(row + seed as usize) % 6];
            blocks.extend(std::iter::repeat_n(row, most / 2 + random.below(most as u64) as usize));
        }
        for place in (1..blocks.len()).rev() {
            blocks.swap(place, random.below(place as u64 + 1) as usize);
        }
        // A fixed rate, or one that follows what was picked so far.
        let is_fixed = seed.is_multiple_of(3);
        let rules = match is_fixed {
            true => Rules { mean_bytes: 16 << 10, ..Rules::default() },
            false => Rules { budget: 0.03, live_blocks: u64::MAX, mean_bytes: 0 },
        };
        let mut class = (seed % 7) as u8;
        let mut sampler = LoneSampler::new(seed, rules, class);
        let mut snapshot = Snapshot::default();
        snapshot.meta.sample_threshold_bytes = LARGE;
        snapshot.meta.sample_mean_bytes = rules.mean_bytes;
        snapshot.meta.sample_block_bytes = memtrack_recorder::host::sample_block_bytes(rules.budget);
        let operator =
            |row| Scope { kind: ScopeKind::Operator, name: format!("row{row}"), ..Scope::default() };
        snapshot.scopes.rows.extend((0..ROWS).map(operator));
        let mut sampling = Sampling::default();
        let mut truth = vec![Numbers::default(); ROWS];
        let mut small_bytes = [0; ROWS];
        let mut picked_lately = 0;
        for (block, &row) in blocks.iter().enumerate() {
            if !is_fixed && block % 512 == 511 {
                class = match picked_lately {
                    0..40 => class.saturating_sub(1),
                    100.. => (class + 1).min(11),
                    _ => class,
                };
                sampler.change(class);
                sampling.widest_interval_bytes =
                    sampling.widest_interval_bytes.max(if class == 0 { 0 } else { interval_of_class(class) });
                picked_lately = 0;
            }
            let size_bytes = random.size(row);
            let is_kept = random.below(3) == 0;
            truth[row][0] += size_bytes as f64;
            truth[row][1] += if is_kept { size_bytes as f64 } else { 0.0 };
            truth[row][2] += 1.0;
            small_bytes[row] += if size_bytes < LARGE { size_bytes } else { 0 };
            let picked =
                if size_bytes >= LARGE { Some(EventFlags::default()) } else { sampler.picks(size_bytes) };
            let Some(flags) = picked else {
                sampling.unrecorded_blocks += 1;
                sampling.unrecorded_bytes += size_bytes;
                continue;
            };
            picked_lately += 1;
            let event = Event {
                ticks: 2 * block as u64,
                address: block as u64,
                size_bytes,
                scope: ScopeId(row as u32 + 1),
                device: DeviceId::HOST,
                action: Action::Alloc,
                flags,
                ..Event::BLANK
            };
            snapshot.events.push(&event);
            if !is_kept {
                snapshot.events.push(&Event { ticks: event.ticks + 1, action: Action::Free, ..event });
            }
        }
        snapshot.sampling = Some(sampling);
        let options = TopOptions::new().limit(usize::MAX);
        let report = top(&snapshot, By::Operator, DeviceId::HOST, &options);
        let errors: HashMap<_, _> = report.rows.iter().map(|row| (row.name.as_str(), row.errors)).collect();
        let mut program = Program { rows: Vec::new(), rows_below_limit: 0, missing_above_limit: 0 };
        for (row, truth) in truth.into_iter().enumerate() {
            let is_below = small_bytes[row] <= report.detection_limit_bytes;
            match errors.get(format!("row{row}").as_str()) {
                Some(errors) => {
                    let estimates = [errors.allocated_bytes, errors.live_at_peak_bytes, errors.count];
                    program.rows.push((truth, estimates));
                    program.rows_below_limit += usize::from(is_below);
                }
                None => program.missing_above_limit += usize::from(!is_below),
            }
        }
        program
    }

    #[test]
    fn intervals_hold_the_truth_in_95_of_100_cases() {
        let programs: Vec<_> = (1..=110).map(program).collect();
        let rows: Vec<_> = programs.iter().flat_map(|program| &program.rows).collect();
        for (number, name) in ["bytes", "bytes live at the peak", "blocks"].iter().enumerate() {
            let all = rows.iter().map(|(truth, estimates)| (truth[number], estimates[number]));
            let (shown, bounds): (Vec<_>, Vec<_>) = all
                .filter(|(_, estimate)| !estimate.is_exact())
                .partition(|(_, estimate)| estimate.relative_error() <= MOST_ERROR);
            let within = |rows: &[(f64, Estimate)]| {
                rows.iter().filter(|(truth, e)| *truth >= e.low && *truth <= e.high).count()
            };
            let share = |part: usize, of: usize| part as f64 / of as f64;
            assert!(shown.len() > 500 && shown.len() + bounds.len() > 2000, "{name}: {}", shown.len());
            let all = share(within(&shown) + within(&bounds), shown.len() + bounds.len());
            assert!((0.93..=0.97).contains(&all), "{name}: {all}");
            // Also of those alone whose error is shown.
            let shown = share(within(&shown), shown.len());
            assert!((0.93..=0.97).contains(&shown), "{name} ± …: {shown}");
            let below = bounds.iter().filter(|(truth, e)| *truth <= e.bound).count();
            let below = share(below, bounds.len());
            assert!(below >= 0.95, "{name} < …: {below}");
        }
        // Who has more than the limit in small blocks has a row.
        let (mut above, mut missing) = (0, 0);
        for program in &programs {
            above += program.rows.len() - program.rows_below_limit;
            missing += program.missing_above_limit;
        }
        assert!(missing * 20 <= above, "{missing} of {above} rows above the detection limit are missing");
    }

    #[test]
    fn a_program_of_which_everything_was_recorded_has_no_errors() {
        let mut random = Random(7);
        let mut snapshot = Snapshot::default();
        snapshot.meta.sample_threshold_bytes = LARGE;
        snapshot.sampling = Some(Sampling::default());
        for address in 0..100 {
            let size_bytes = random.size(2);
            let (device, action) = (DeviceId::HOST, Action::Alloc);
            snapshot.events.push(&Event {
                ticks: address,
                address,
                size_bytes,
                device,
                action,
                ..Event::BLANK
            });
        }
        let report = top(&snapshot, By::Size, DeviceId::HOST, &TopOptions::default());
        let exact = |row: &TopRow| row.errors.allocated_bytes.is_exact() && row.errors.count.is_exact();
        assert!(report.rows.iter().all(|row| exact(row) && !row.estimated) && !report.totals.estimated);
        assert!(!report.to_text(None).contains(['~', '±', '<']), "{report}");
    }
}
