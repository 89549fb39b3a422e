//! Converts ticks to time, for reports and writers. The two readings of a [`Clock`] come from the recorder.
//!
//! **What are seconds relative to?** For a recording, they are relative to its start, even in its PyTorch form, which
//! has whole microseconds. For PyTorch's own files, they are relative to the first event. In JSON, the `seconds_since`
//! beside every `seconds` states which of the two applies.

use super::pytorch::Key;
use super::{Clock, Snapshot};

/// The point in time from which a snapshot's reports count seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The start of the recording.
    Start,
    /// The first event, because PyTorch's files do not contain the time at which their recording started.
    FirstEvent,
    /// The first event that has a time, because the file contains the times of only some of its events.
    FirstTimedEvent,
}

impl Since {
    /// Returns the name in lower case, as used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::FirstEvent => "first_event",
            Self::FirstTimedEvent => "first_timed_event",
        }
    }

    /// Formats a time in seconds, as in `1.808 s after the start`.
    pub fn moment(self, seconds: f64) -> String {
        let from = match self {
            Self::Start => "the start",
            Self::FirstEvent => "the first event",
            Self::FirstTimedEvent => "the first event that has a time",
        };
        format!("{seconds:.3} s after {from}")
    }
}

impl Snapshot {
    /// Returns the point in time from which the snapshot's reports count seconds. It is the start of the recording,
    /// even after conversion to PyTorch's form and in PyTorch files that memtrack wrote. For PyTorch's own files, it is
    /// the first event.
    pub fn seconds_since(&self) -> Since {
        match self.pytorch.as_deref() {
            Some(pytorch) if pytorch.start_us.is_none() => {
                // For files without any times, the result does not matter, because their reports print no times.
                if self.has_times() || !self.has_any_time() {
                    Since::FirstEvent
                } else {
                    Since::FirstTimedEvent
                }
            }
            _ => Since::Start,
        }
    }

    /// Returns whether the file contains the time of the event in `row`. Events from PyTorch versions before 2.2 have
    /// none; their ticks are their numbers in the trace.
    pub fn has_time(&self, row: usize) -> bool {
        self.pytorch.as_deref().is_none_or(|pytorch| pytorch.events.has(row, Key::TimeUs))
    }

    /// Returns whether the file contains the time of every event, so that the time between any two of them is known.
    pub fn has_times(&self) -> bool {
        self.timed().is_none_or(|mut timed| timed.all(|is_timed| is_timed))
    }

    /// Returns whether the file contains the time of at least one event, or has no events.
    pub fn has_any_time(&self) -> bool {
        self.events.is_empty() || self.timed().is_none_or(|mut timed| timed.any(|is_timed| is_timed))
    }

    /// Returns whether each event has a time, in order, or `None` for recordings, where every event has one.
    fn timed(&self) -> Option<impl Iterator<Item = bool>> {
        let events = &self.pytorch.as_deref()?.events;
        let timed: Vec<bool> = events.shapes.iter().map(|shape| shape.has(Key::TimeUs)).collect();
        Some(events.shape.iter().map(move |&shape| timed[shape as usize]))
    }

    /// Returns the time of the event in `row`, in seconds since [`Self::seconds_since`], or `None` if the file does not
    /// contain this time.
    pub fn seconds_at(&self, row: usize) -> Option<f64> {
        self.has_time(row).then(|| self.clock.seconds_since_start(self.events.ticks[row]))
    }
}

impl Clock {
    /// Returns a clock with the earlier first reading and the later last reading of the two. Both must be readings of the
    /// same clock.
    #[must_use]
    pub fn spanning(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns the time at `ticks` in nanoseconds since the Unix epoch. It is interpolated between the two readings,
    /// and extrapolated before and after them. With only one reading (or two at the same time), a tick counts as a
    /// nanosecond. Results that do not fit in 64 bits are clamped.
    pub fn time_ns(&self, ticks: u64) -> u64 {
        let (first_ticks, first_ns) = self.first;
        let (last_ticks, last_ns) = self.last;
        let since = i128::from(ticks) - i128::from(first_ticks);
        let moved = if last_ticks > first_ticks && last_ns > first_ns {
            // |since| < 2^64, so the product fits in an unsigned 128-bit integer, but not in a signed one.
            let (rise, run) = (u128::from(last_ns - first_ns), u128::from(last_ticks - first_ticks));
            let moved = since.unsigned_abs() * rise / run;
            i128::try_from(moved).unwrap_or(i128::MAX) * since.signum()
        } else {
            since
        };
        i128::from(first_ns).saturating_add(moved).clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Returns the seconds from the first reading to `ticks`, rounded to microseconds, which is the resolution of
    /// PyTorch's files. The result is negative before the first reading.
    pub fn seconds_since_start(&self, ticks: u64) -> f64 {
        let us = |ns: u64| (ns / 1000) as i64;
        (us(self.time_ns(ticks)) - us(self.first.1)) as f64 / 1e6
    }

    /// Creates a clock whose ticks are microseconds and that starts at `start_us`.
    pub fn of_microseconds(start_us: u64) -> Self {
        let start_us = start_us.min(u64::MAX - 1);
        // Times that no real clock reaches do not fit in 64 bits as nanoseconds, but the differences between them do.
        let start_ns = if start_us < u64::MAX / 2000 { start_us * 1000 } else { 0 };
        Self { first: (start_us, start_ns), last: (start_us + 1, start_ns + 1000) }
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
    fn one_reading_and_extreme_ticks_do_not_fail() {
        let clock = Clock { first: (10, 100), last: (10, 100) };
        assert_eq!((clock.time_ns(25), clock.time_ns(0)), (115, 90));
        let steep = Clock { first: (0, 0), last: (1, u64::MAX) };
        assert_eq!((steep.time_ns(u64::MAX), steep.time_ns(1)), (u64::MAX, u64::MAX));
        let falling = Clock { first: (u64::MAX, 7), last: (0, u64::MAX) };
        assert_eq!(falling.time_ns(0), 0);
    }

    #[test]
    fn differences_of_extreme_times_are_exact() {
        for start in [0, 1_700_000_000_000_000, 1_700_000_000_000_000_000, u64::MAX - 3] {
            let clock = Clock::of_microseconds(start);
            assert_eq!(clock.seconds_since_start(start + 2), 2e-6, "{start}");
        }
        assert_eq!(Clock::of_microseconds(u64::MAX).seconds_since_start(u64::MAX), 1e-6);
    }
}
