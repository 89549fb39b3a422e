//! A number before and after a change. Numbers estimated from samples have errors, so their differences do too.

use crate::estimate::{Estimate, MAX_RELATIVE_ERROR};
use memtrack_model::units::human_bytes;
use serde::Serialize;

/// A number in one file or at one moment, with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Amount {
    /// The number itself; if it was estimated from samples, the best estimate.
    pub value: u64,
    /// The number's error.
    pub error: Estimate,
}

impl Amount {
    /// Creates a number with its error.
    pub fn new(value: u64, error: Estimate) -> Self {
        // The estimate can differ from `value`, but only by rounding. For an exact number, use the integer itself.
        let error = if error.is_exact() { Estimate::exact(value as f64) } else { error };
        Self { value, error }
    }

    /// Creates an exact number.
    pub fn exact(value: u64) -> Self {
        Self::new(value, Estimate::exact(value as f64))
    }

    /// Creates the estimate for a group without samples. Because blocks are sampled, the group may still have up to
    /// `most` bytes or blocks.
    pub fn without_samples(most: f64) -> Self {
        Self { value: 0, error: Estimate { high: most, bound: most, ..Estimate::default() } }
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.value.saturating_add(other.value), self.error.add(&other.error))
    }
}

/// The ways in which a group can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The group became larger.
    Grew,
    /// The group became smaller.
    Shrank,
    /// The group is missing from the earlier file.
    New,
    /// The group is missing from the later file.
    Gone,
    /// The group is unchanged, or the difference lies within the margin of error of an estimate.
    Same,
}

impl Kind {
    /// Returns the name of the kind in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Same => "same",
        }
    }
}

/// A number that is compared between two files, or between two moments in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The number in the earlier file or at the earlier moment.
    pub before: Amount,
    /// The number in the later file or at the later moment.
    pub after: Amount,
}

impl Change {
    /// Returns the growth; negative if the number fell.
    pub fn by(&self) -> i128 {
        i128::from(self.after.value) - i128::from(self.before.value)
    }

    /// Returns the growth with its error.
    pub fn estimate(&self) -> Estimate {
        self.after.error.minus(&self.before.error)
    }

    /// Returns whether both numbers are exact.
    pub fn is_exact(&self) -> bool {
        self.before.error.is_exact() && self.after.error.is_exact()
    }

    /// Returns the kind of change. A difference within the error counts as [`Kind::Same`].
    pub fn kind(&self) -> Kind {
        let by = self.estimate();
        let same = match self.is_exact() {
            true => self.by() == 0,
            false => by.low <= 0.0 && by.high >= 0.0,
        };
        match (same, self.before.value, self.after.value) {
            (true, ..) => Kind::Same,
            (_, 0, _) => Kind::New,
            (_, _, 0) => Kind::Gone,
            (_, before, after) if after > before => Kind::Grew,
            _ => Kind::Shrank,
        }
    }

    /// Returns the change, clamped to a number that JSON parsers accept, because sums in a file from another source may
    /// be larger.
    pub fn clamped_growth(&self) -> i64 {
        i64::try_from(self.by()).unwrap_or(if self.by() > 0 { i64::MAX } else { i64::MIN })
    }

    /// Formats the difference as bytes, e.g. `+3.00 GiB`, `−12.0 MiB ± 4 %` or `±0 B`; if the error is large, formats
    /// it as an interval, e.g. `+1.0 MiB to +9.0 MiB`.
    pub fn format_bytes(&self) -> String {
        let signed = |by: i128| {
            let sign = match by {
                0 => "±",
                1.. => "+",
                _ => "−",
            };
            format!("{sign}{}", human_bytes(u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX)))
        };
        let (by, estimate) = (self.by(), self.estimate());
        let counted = self.before.error.counted || self.after.error.counted;
        let has_ends = estimate.low.is_finite() && estimate.high.is_finite();
        if self.is_exact() || has_ends && !counted && (by == 0 || estimate.standard_error == 0.0) {
            return signed(by);
        }
        let off = (estimate.high - estimate.value).max(estimate.value - estimate.low) / estimate.value.abs();
        // A number from an incomplete recording has no upper bound, so the difference lacks a bound too.
        match (estimate.low.is_finite(), estimate.high.is_finite()) {
            (true, true) => {}
            (true, false) => return format!("at least {}", signed(estimate.low as i128)),
            (false, true) => return format!("at most {}", signed(estimate.high as i128)),
            (false, false) => return format!("{} recorded", signed(by)),
        }
        if counted || off > MAX_RELATIVE_ERROR {
            // With so large an error, the difference alone says little, so show the interval instead.
            return format!("{} to {}", signed(estimate.low as i128), signed(estimate.high as i128));
        }
        let percent = (off * 100.0).max(0.1);
        let percent = if percent < 1.0 { format!("{percent:.1}") } else { format!("{percent:.0}") };
        format!("{} ± {percent} %", signed(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(low: u64, value: u64, high: u64) -> Amount {
        let error = Estimate {
            value: value as f64,
            standard_error: 1.0,
            low: low as f64,
            high: high as f64,
            bound: high as f64,
            counted: false,
        };
        Amount::new(value, error)
    }

    #[test]
    fn differences_have_sign_and_their_error() {
        let shown = |before, after| Change { before, after }.format_bytes();
        assert_eq!(shown(Amount::exact(1 << 30), Amount::exact(4 << 30)), "+3.00 GiB");
        assert_eq!(shown(Amount::exact(2048), Amount::exact(1024)), "−1.0 KiB");
        assert_eq!(shown(Amount::exact(5), Amount::exact(5)), "±0 B");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(1948, 2048, 2148)), "+1.0 KiB ± 10 %");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(2048, 4096, 8192)), "+1.0 KiB to +7.0 KiB");
    }

    #[test]
    fn exact_numbers_differ_by_byte_and_estimates_by_more_than_their_error() {
        let change = |before, after| Change { before, after }.kind();
        assert_eq!(change(Amount::exact(1 << 60), Amount::exact((1 << 60) + 1)), Kind::Grew);
        assert_eq!(change(Amount::exact(7), Amount::exact(7)), Kind::Same);
        assert_eq!(change(Amount::exact(0), Amount::exact(7)), Kind::New);
        assert_eq!(change(Amount::exact(7), Amount::exact(0)), Kind::Gone);
        assert_eq!(change(sampled(900, 1000, 1100), sampled(950, 1100, 1250)), Kind::Same);
        assert_eq!(change(sampled(900, 1000, 1100), sampled(1200, 1300, 1400)), Kind::Grew);
        assert_eq!(change(sampled(900, 1000, 1100), sampled(90, 100, 110)), Kind::Shrank);
    }

    #[test]
    fn groups_without_sample_may_have_existed() {
        let new = |after| Change { before: Amount::without_samples(500.0), after }.kind();
        assert_eq!(new(sampled(300, 400, 600)), Kind::Same);
        assert_eq!(new(sampled(900, 1000, 1100)), Kind::New);
    }
}
