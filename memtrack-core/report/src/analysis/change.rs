//! A number before and after, and what became of it. Numbers that are based on samples have errors; a difference that
//! lies within them is none.

use crate::analysis::estimate::{Estimate, MOST_ERROR};
use memtrack_model::answer::ErrorAnswer;
use memtrack_model::units::human_bytes;
use serde::Serialize;

/// A number of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Amount {
    /// The number.
    pub value: u64,
    /// How far off it may be.
    pub error: Estimate,
}

impl Amount {
    pub(in crate::analysis) fn new(value: u64, error: Estimate) -> Self {
        // Rounding apart the two are the same; of an exact one the integer counts.
        let error = if error.is_exact() { Estimate::exact(value as f64) } else { error };
        Self { value, error }
    }

    pub(in crate::analysis) fn exact(value: u64) -> Self {
        Self::new(value, Estimate::exact(value as f64))
    }

    /// Nothing was seen; where blocks are sampled there may have been as much as `most`.
    pub(in crate::analysis) fn unseen(most: f64) -> Self {
        Self { value: 0, error: Estimate { high: most, bound: most, ..Estimate::default() } }
    }

    pub(in crate::analysis) fn plus(self, other: Self) -> Self {
        Self::new(self.value.saturating_add(other.value), self.error.plus(&other.error))
    }
}

/// What became of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There is more of it.
    Grew,
    /// There is less of it.
    Shrank,
    /// There was none before.
    New,
    /// There is none any more.
    Gone,
    /// It is equal, or the difference lies within the error of an estimate.
    Same,
}

impl Kind {
    /// Its name in lower case.
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

/// A number in both files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// In the earlier file.
    pub before: Amount,
    /// In the later one.
    pub after: Amount,
}

impl Change {
    /// By how much it grew; negative if it shrank.
    pub fn by(&self) -> i128 {
        i128::from(self.after.value) - i128::from(self.before.value)
    }

    /// By how much it grew, with how far off that may be.
    pub fn estimate(&self) -> Estimate {
        self.after.error.less(&self.before.error)
    }

    /// Whether both numbers are exact.
    pub fn is_exact(&self) -> bool {
        self.before.error.is_exact() && self.after.error.is_exact()
    }

    /// What became of it. A difference within the error is none.
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

    /// The difference as bytes: `+3.00 GiB`, `−12.0 MiB ± 4 %`, `±0 B`; with a large error, where it lies: `+1.0 MiB to
    /// +9.0 MiB`.
    pub(in crate::analysis) fn as_bytes(&self) -> String {
        let signed = |by: i128| {
            let sign = match by {
                0 => "±",
                1.. => "+",
                _ => "−",
            };
            format!("{sign}{}", human_bytes(u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX)))
        };
        let (by, estimate) = (self.by(), self.estimate());
        if self.is_exact() || by == 0 || estimate.standard_error == 0.0 {
            return signed(by);
        }
        let off = (estimate.high - estimate.value).max(estimate.value - estimate.low) / estimate.value.abs();
        if off > MOST_ERROR {
            // The number itself says little; where it lies says more.
            return format!("{} to {}", signed(estimate.low as i128), signed(estimate.high as i128));
        }
        let percent = (off * 100.0).max(0.1);
        let percent = if percent < 1.0 { format!("{percent:.1}") } else { format!("{percent:.0}") };
        format!("{} ± {percent} %", signed(by))
    }

    /// Of bytes, as answers have it.
    pub(in crate::analysis) fn bytes_answer(&self) -> BytesChangeAnswer {
        BytesChangeAnswer {
            before_requested_bytes: self.before.value,
            before_requested_bytes_error: self.before.error.answer(),
            after_requested_bytes: self.after.value,
            after_requested_bytes_error: self.after.error.answer(),
            change_requested_bytes: self.by_answer(),
            change_requested_bytes_error: self.error_answer(),
        }
    }

    /// Of blocks, as answers have it.
    pub(in crate::analysis) fn count_answer(&self) -> CountChangeAnswer {
        CountChangeAnswer {
            before_count: self.before.value,
            before_count_error: self.before.error.answer(),
            after_count: self.after.value,
            after_count_error: self.after.error.answer(),
            change_count: self.by_answer(),
            change_count_error: self.error_answer(),
        }
    }

    /// What a foreign file adds up to may be more than JSON's readers take.
    fn by_answer(&self) -> i64 {
        i64::try_from(self.by()).unwrap_or(if self.by() > 0 { i64::MAX } else { i64::MIN })
    }

    fn error_answer(&self) -> Option<ErrorAnswer> {
        if self.is_exact() { None } else { self.estimate().answer() }
    }
}

/// Requested bytes in both files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BytesChangeAnswer {
    /// In the earlier file.
    pub before_requested_bytes: u64,
    /// How far off they may be.
    pub before_requested_bytes_error: Option<ErrorAnswer>,
    /// In the later file.
    pub after_requested_bytes: u64,
    /// How far off they may be.
    pub after_requested_bytes_error: Option<ErrorAnswer>,
    /// By how much they grew; negative if they shrank.
    pub change_requested_bytes: i64,
    /// How far off that may be.
    pub change_requested_bytes_error: Option<ErrorAnswer>,
}

/// Blocks in both files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountChangeAnswer {
    /// In the earlier file.
    pub before_count: u64,
    /// How far off their number may be.
    pub before_count_error: Option<ErrorAnswer>,
    /// In the later file.
    pub after_count: u64,
    /// How far off their number may be.
    pub after_count_error: Option<ErrorAnswer>,
    /// By how much their number grew; negative if it shrank.
    pub change_count: i64,
    /// How far off that may be.
    pub change_count_error: Option<ErrorAnswer>,
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
        };
        Amount::new(value, error)
    }

    #[test]
    fn exact_numbers_differ_by_a_byte_and_estimates_by_more_than_their_error() {
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
    fn what_left_no_sample_may_have_been_there() {
        let new = |after| Change { before: Amount::unseen(500.0), after }.kind();
        assert_eq!(new(sampled(300, 400, 600)), Kind::Same);
        assert_eq!(new(sampled(900, 1000, 1100)), Kind::New);
    }

    #[test]
    fn differences_have_a_sign_and_their_error() {
        let shown = |before, after| Change { before, after }.as_bytes();
        assert_eq!(shown(Amount::exact(1 << 30), Amount::exact(4 << 30)), "+3.00 GiB");
        assert_eq!(shown(Amount::exact(2048), Amount::exact(1024)), "−1.0 KiB");
        assert_eq!(shown(Amount::exact(5), Amount::exact(5)), "±0 B");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(1948, 2048, 2148)), "+1.0 KiB ± 10 %");
        assert_eq!(shown(sampled(1024, 1024, 1024), sampled(2048, 4096, 8192)), "+1.0 KiB to +7.0 KiB");
    }
}
