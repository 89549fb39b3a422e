//! The precision of sums over samples. A block of size s that was sampled with probability p stands for 1/p blocks and
//! s/p bytes. The variance of such a sum can be estimated from the samples alone: Σ(1 − p)/p² for counts and Σs²(1 −
//! p)/p² for bytes; variances add up over rows, threads, intervals and files. With few samples the error is skewed, and
//! without samples the variance is zero. The confidence limits are therefore quantiles of gamma distributions, like the
//! exact limits for Poisson counts, and allow for the amount that one more sample would have added.
//!
//! Exact knowledge narrows the limits: recorded blocks certainly exist, and no row can have more unrecorded blocks than
//! there are in total.
//!
//! **Why are rows not calibrated with exact counts per size class?** The sampling budget already yields enough samples,
//! and keeping such counts would slow down every allocation.

mod format;
mod known_total;
mod sums;

pub use known_total::KnownTotal;
pub use sums::{PartSums, Precision, Sum, Sums};

use memtrack_model::answer::ErrorAnswer;

/// The relative error above which a number is shown as a bound.
pub const MAX_RELATIVE_ERROR: f64 = 0.5;

/// A number and its error. For an exact number, the standard error is 0 and all other numeric fields are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number itself, as counted or as estimated from samples.
    pub value: f64,
    /// The standard error, computed from the samples alone, so it is also 0 if there was no sample.
    pub standard_error: f64,
    /// The lower end of the interval that contains the true value with 95 % confidence.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The one-sided bound, below which the true value lies with 95 % confidence.
    pub bound: f64,
    /// Whether the interval was counted rather than estimated. Both ends are then certain, and [`Self::value`] is the
    /// lower end. If the upper end is unknown, it is infinite.
    pub counted: bool,
}

// A number is serialized in two fields: itself, as an integer, and its error.
memtrack_model::serialize_as!(Estimate => Option<ErrorAnswer>: Estimate::answer);

impl Estimate {
    /// Creates an exact number.
    pub const fn exact(value: f64) -> Self {
        Self { value, standard_error: 0.0, low: value, high: value, bound: value, counted: false }
    }

    /// Creates a number that is certain to lie between `low` and `high`.
    pub const fn between(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low };
        Self { value: low, standard_error: 0.0, low, high, bound: high, counted: high > low }
    }

    /// Returns the number for a recording that may be incomplete. If the recording has not ended, the number is only a
    /// lower bound, because later events are missing.
    #[must_use]
    pub fn with_completeness(self, ended: bool) -> Self {
        match ended {
            true => self,
            false => Self { high: f64::INFINITY, bound: f64::INFINITY, ..self },
        }
    }

    /// Returns the number reinterpreted as the total of all blocks rather than of one row. The total includes small
    /// blocks without a sample, so a sum without samples is only a lower bound.
    pub fn as_total(self) -> Self {
        match self.covers_only_recorded_blocks() && self.high > self.low {
            true => Self::between(self.low, self.high),
            false => self,
        }
    }

    /// Returns whether the number is exact.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// Raises the lower limit to `least`. The true number is known to be at least that large.
    pub fn at_least(self, least: f64) -> Self {
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

    /// Lowers the upper limit to `most`. The true number is known to be at most that large.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        let Self { value, standard_error, low, high, bound, counted } = self;
        // If a value is too large by some factor, its lower limit is too large by the same factor.
        let low = if value > most && low < value { low * (most / value) } else { low };
        Self {
            value: value.min(most),
            standard_error,
            low: low.min(most),
            high: high.min(most),
            bound: bound.min(most),
            counted,
        }
    }

    /// Adds a number with an independent error.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        self.combine(other, 1.0)
    }

    /// Subtracts a number with an independent error; the difference may be negative.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.combine(other, -1.0)
    }

    /// Multiplies the number by an exact factor.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let Self { value, standard_error, low, high, bound, counted } = self;
        Self {
            value: value * factor,
            standard_error: standard_error * factor.abs(),
            low: if factor < 0.0 { high } else { low } * factor,
            high: if factor < 0.0 { low } else { high } * factor,
            bound: if factor < 0.0 { low } else { bound } * factor,
            counted,
        }
    }

    fn combine(&self, other: &Self, sign: f64) -> Self {
        let value = self.value + sign * other.value;
        let below = |one: &Self| one.value - one.low;
        let above = |one: &Self| one.high - one.value;
        let (down, up) = match sign > 0.0 {
            true => (below(other), above(other)),
            false => (above(other), below(other)),
        };
        // In a difference, the upper limit comes from the lower limit of the subtracted number. A difference has no
        // one-sided bound of its own, so its upper limit is used instead.
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

    /// Returns the larger of the distances from the value to the ends of the interval, relative to the value; infinite
    /// if the value is 0.
    pub fn relative_error(&self) -> f64 {
        if self.is_exact() {
            return 0.0;
        }
        (self.high - self.value).max(self.value - self.low) / self.value
    }

    /// Returns whether the number covers only blocks that are always recorded, without any samples. There may also be
    /// small blocks that were not sampled. Reports print the possible total of those blocks once, for all rows.
    fn covers_only_recorded_blocks(&self) -> bool {
        self.standard_error == 0.0 && self.value > 0.0 && !self.counted && self.high.is_finite()
    }

    /// Returns the error for JSON, or `None` if the number is exact.
    pub fn answer(&self) -> Option<ErrorAnswer> {
        (!self.is_exact() && !self.covers_only_recorded_blocks()).then(|| ErrorAnswer {
            standard_error: self.standard_error,
            low: self.low.floor() as i64,
            high: self.high.is_finite().then(|| self.high.ceil() as i64),
        })
    }
}
