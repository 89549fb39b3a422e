//! Ticks into time. Reports and writers ask here; the two readings of a [`Clock`] come from the recorder.

use super::Clock;

impl Clock {
    /// Nanoseconds since the Unix epoch at `ticks`: linear through the two readings, before and after them too. With
    /// one reading only (or two of the same moment) a tick is taken for a nanosecond. Results outside 64 bits are
    /// clamped.
    pub fn time_ns(&self, ticks: u64) -> u64 {
        let (first_ticks, first_ns) = self.first;
        let (last_ticks, last_ns) = self.last;
        let since = i128::from(ticks) - i128::from(first_ticks);
        let moved = if last_ticks > first_ticks && last_ns > first_ns {
            // |since| < 2^64 and the quotient's numerator < 2^128 in magnitude, but only 2^127 fits the sign.
            let (rise, run) = (u128::from(last_ns - first_ns), u128::from(last_ticks - first_ticks));
            let moved = since.unsigned_abs() * rise / run;
            i128::try_from(moved).unwrap_or(i128::MAX) * since.signum()
        } else {
            since
        };
        i128::from(first_ns).saturating_add(moved).clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Seconds from the first reading to `ticks`; negative before it.
    pub fn seconds_since_start(&self, ticks: u64) -> f64 {
        (i128::from(self.time_ns(ticks)) - i128::from(self.first.1)) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_linear_through_both_readings() {
        let clock = Clock { first: (1_000, 5_000_000), last: (3_000, 5_001_000) };
        assert_eq!(clock.time_ns(1_000), 5_000_000);
        assert_eq!(clock.time_ns(3_000), 5_001_000);
        assert_eq!(clock.time_ns(2_000), 5_000_500);
        assert_eq!(clock.time_ns(5_000), 5_002_000);
        assert_eq!(clock.time_ns(0), 4_999_500);
    }

    #[test]
    fn one_reading_and_extreme_ticks_give_an_answer() {
        let clock = Clock { first: (10, 100), last: (10, 100) };
        assert_eq!((clock.time_ns(25), clock.time_ns(0)), (115, 90));
        let steep = Clock { first: (0, 0), last: (1, u64::MAX) };
        assert_eq!((steep.time_ns(u64::MAX), steep.time_ns(1)), (u64::MAX, u64::MAX));
        let falling = Clock { first: (u64::MAX, 7), last: (0, u64::MAX) };
        assert_eq!(falling.time_ns(0), 0);
    }
}
