//! Classifies the change of a group: it became larger or smaller, appeared, disappeared, or is unchanged. A difference
//! within the error of an estimate counts as unchanged.

use crate::analysis::change::{Amount, Change};
use crate::analysis::estimate::Estimate;
use serde::Serialize;

impl Amount {
    pub(in crate::analysis) fn exact(value: u64) -> Self {
        Self::new(value, Estimate::exact(value as f64))
    }

    /// Creates the estimate for a group without samples. Because blocks are sampled, the group may still have up to
    /// `most` bytes or blocks.
    pub(in crate::analysis) fn without_samples(most: f64) -> Self {
        Self { value: 0, error: Estimate { high: most, bound: most, ..Estimate::default() } }
    }

    pub(in crate::analysis) fn add(self, other: Self) -> Self {
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

impl Change {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(low: u64, value: u64, high: u64) -> Amount {
        let error = Estimate {
            counted: false,
            value: value as f64,
            standard_error: 1.0,
            low: low as f64,
            high: high as f64,
            bound: high as f64,
        };
        Amount::new(value, error)
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
