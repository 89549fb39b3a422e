//! Formats numbers with errors: with the error in percent, as a bound, or as both ends of an interval.

use super::{Estimate, MAX_RELATIVE_ERROR};
use memtrack_model::units::{human_bytes, human_count, human_share};

impl Estimate {
    /// Formats the number as bytes, where `bytes` is the value as an integer: as `1.3 GiB ± 4 %`, as a bound
    /// (`< 40.0 MiB`) or, if it was counted, as `at least 2.8 MiB, at most 3.1 MiB`.
    pub fn as_bytes(&self, bytes: u64) -> String {
        match self.notation() {
            Notation::Exact => human_bytes(bytes),
            Notation::Error(percent) => format!("{} ± {percent} %", human_bytes(bytes)),
            Notation::Bound => format!("< {}", human_bytes(self.bound.ceil() as u64)),
            Notation::Ends => self.format_interval(),
        }
    }

    /// Formats the ends of the interval, or a single number if both ends look the same as text.
    fn format_interval(&self) -> String {
        let low = human_bytes(self.low.floor() as u64);
        if self.high.is_infinite() {
            return format!("at least {low}");
        }
        let high = human_bytes(self.high.ceil() as u64);
        if low == high { low } else { format!("at least {low}, at most {high}") }
    }

    /// Formats the number like [`Self::as_bytes`], but with a lower limit instead of an upper one.
    pub fn format_at_least_bytes(&self, bytes: u64) -> String {
        match self.notation() {
            Notation::Bound | Notation::Ends => format!("at least {}", human_bytes(self.low.floor() as u64)),
            _ => self.as_bytes(bytes),
        }
    }

    /// Formats the difference between the number, where `bytes` is the value as an integer, and the exact number
    /// `other`, as in `+1.3 GiB ± 4 %` or `−40.0 MiB`. If the two numbers might be equal, formats the largest possible
    /// difference, as in `±3.0 MiB`.
    pub fn format_difference(&self, bytes: u64, other: u64) -> String {
        let sign = if bytes > other { "+" } else { "−" };
        let by = self.minus(&Self::exact(other as f64));
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

    /// Formats a `share` (0 to 1) that is proportional to the number, as in `3.2 %`, or as in `< 4.0 %` if the number
    /// is shown as a bound. A share has the same relative error as its number.
    pub fn as_share(&self, share: f64) -> String {
        match self.notation() {
            Notation::Bound if self.value > 0.0 => {
                format!("< {}", human_share((share * self.bound / self.value).min(1.0)))
            }
            _ => human_share(share),
        }
    }

    /// Formats the number as a count, as in `23,000 ± 4 %`, `< 700` (a bound) or `at least 700`.
    pub fn as_count(&self, count: u64) -> String {
        // Round away digits that are smaller than the error.
        let digits = |value: f64, of: f64| {
            let unit = 10_f64.powf(of.max(1.0).log10().floor());
            human_count(((value / unit).round() * unit) as u64)
        };
        match self.notation() {
            Notation::Exact => human_count(count),
            Notation::Error(percent) => {
                let off = (self.high - self.value).max(self.value - self.low);
                format!("{} ± {percent} %", digits(self.value, off))
            }
            Notation::Ends => {
                let (low, high) = (self.low.ceil() as u64, self.high.ceil() as u64);
                match self.high.is_infinite() {
                    true => format!("at least {}", human_count(low)),
                    false => format!("at least {}, at most {}", human_count(low), human_count(high)),
                }
            }
            Notation::Bound => format!("< {}", digits(self.bound * 1.05, self.bound / 10.0)),
        }
    }

    /// Formats the number as a count followed by a noun, as in `23,000 ± 4 % blocks`.
    pub fn as_counted(&self, count: u64, what: &str) -> String {
        format!("{} {what}{}", self.as_count(count), if count == 1 { "" } else { "s" })
    }

    fn notation(&self) -> Notation {
        let error = self.relative_error();
        match error {
            _ if self.is_exact() => Notation::Exact,
            _ if self.counted || self.high.is_infinite() => Notation::Ends,
            _ if self.covers_only_recorded_blocks() => Notation::Exact,
            _ if error.is_nan() || error > MAX_RELATIVE_ERROR => Notation::Bound,
            _ if error >= 0.00995 => Notation::Error(format!("{:.0}", error * 100.0)),
            _ => Notation::Error(format!("{:.1}", (error * 100.0).max(0.1))),
        }
    }
}

/// A notation for a number that has an error.
enum Notation {
    Exact,
    /// The value and its error in percent.
    Error(String),
    Bound,
    /// Both ends of the interval.
    Ends,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_above_50_percent_is_shown_as_bound() {
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
        let unseen =
            Estimate { value: 0.0, low: 0.0, high: 80.0, bound: 90.0, standard_error: 0.0, counted: false };
        assert_eq!((unseen.as_count(0), unseen.as_bytes(0)), ("< 95".into(), "< 90 B".into()));
    }

    #[test]
    fn blocks_that_are_always_recorded_are_exact_beside_samples() {
        let (value, standard_error) = (f64::from(32 << 20), 0.0);
        let one = Estimate {
            value,
            low: value,
            high: 1.05 * value,
            bound: 1.04 * value,
            standard_error,
            counted: false,
        };
        assert_eq!((one.as_bytes(32 << 20), one.answer()), ("32.0 MiB".into(), None));
        let count = Estimate { value: 1.0, low: 1.0, high: 1400.0, bound: 1300.0, ..one };
        assert_eq!(count.as_counted(1, "block"), "1 block");
    }

    #[test]
    fn number_of_incomplete_recording_is_lower_limit() {
        let exact = Estimate::exact(f64::from(16 << 20)).with_completeness(false);
        assert_eq!(
            (exact.as_bytes(16 << 20), exact.as_count(16)),
            ("at least 16.0 MiB".into(), "at least 16,777,216".into())
        );
        let answer = exact.answer().unwrap();
        assert_eq!((answer.low, answer.high), (16 << 20, None));
        let sampled = Estimate {
            value: 2048.0,
            low: 1024.0,
            high: 4096.0,
            bound: 4096.0,
            standard_error: 1.0,
            counted: false,
        };
        assert_eq!(sampled.with_completeness(false).as_bytes(2048), "at least 1.0 KiB");
        assert_eq!(sampled.with_completeness(true), sampled);
    }

    #[test]
    fn difference_of_estimates_has_their_error() {
        let around = |low: f64, value: f64, high: f64| {
            let estimate = Estimate { value, low, high, bound: high, standard_error: 1.0, counted: false };
            estimate.format_difference(value as u64, 10 << 10)
        };
        assert_eq!(Estimate::exact(2048.0).format_difference(2048, 1024), "+1.0 KiB");
        assert_eq!(Estimate::exact(1024.0).format_difference(1024, 2048), "−1.0 KiB");
        assert_eq!(Estimate::exact(1024.0).format_difference(1024, 1024), "±0 B");
        assert_eq!(around(19.0 * 1024.0, 20.0 * 1024.0, 21.0 * 1024.0), "+10.0 KiB ± 10 %");
        assert_eq!(around(4.0 * 1024.0, 5.0 * 1024.0, 6.0 * 1024.0), "−5.0 KiB ± 20 %");
        assert_eq!(around(9.0 * 1024.0, 11.0 * 1024.0, 13.0 * 1024.0), "±3.0 KiB");
    }
}
