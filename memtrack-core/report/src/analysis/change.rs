//! A number before and after a change. Numbers estimated from samples have errors, so their differences do too.

use crate::analysis::estimate::{Estimate, MAX_RELATIVE_ERROR};
use memtrack_model::units::human_bytes;

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
    pub(in crate::analysis) fn new(value: u64, error: Estimate) -> Self {
        // The estimate can differ from `value`, but only by rounding. For an exact number, use the integer itself.
        let error = if error.is_exact() { Estimate::exact(value as f64) } else { error };
        Self { value, error }
    }
}

/// A number that is compared between two files, or between two moments in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
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

    /// Formats the difference as bytes, e.g. `+3.00 GiB`, `−12.0 MiB ± 4 %` or `±0 B`; if the error is large, formats
    /// it as an interval, e.g. `+1.0 MiB to +9.0 MiB`.
    pub(in crate::analysis) fn format_bytes(&self) -> String {
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

    fn exact(value: u64) -> Amount {
        Amount::new(value, Estimate::exact(value as f64))
    }

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
        assert_eq!(shown(exact(1 << 30), exact(4 << 30)), "+3.00 GiB");
        assert_eq!(shown(exact(2048), exact(1024)), "−1.0 KiB");
        assert_eq!(shown(exact(5), exact(5)), "±0 B");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(1948, 2048, 2148)), "+1.0 KiB ± 10 %");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(2048, 4096, 8192)), "+1.0 KiB to +7.0 KiB");
    }
}
