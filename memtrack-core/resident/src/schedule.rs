//! When to read: when the resident memory has grown beyond all earlier readings, so that one of them is near its peak, and from
//! time to time.
//!
//! **How many readings?** One for each growth by a fiftieth, and one for each 64th of the process's age: their number grows with
//! the logarithms of both, so a recording of a year has a few thousand.

use std::time::{Duration, Instant};

/// The shortest time between two readings of a process that does not grow.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// The longest one, if the file is limited, and old readings are removed with its oldest parts.
const MAX_INTERVAL_IN_PARTS: Duration = Duration::from_secs(60);
/// The growth that is read at once: a fiftieth of the highest reading, and at least this many bytes.
const MIN_GROWTH_BYTES: u64 = 1 << 20;
/// A reading may be made again after this many times the duration of the last one: readings then take less than 2 % of a
/// processor.
const MIN_PAUSE_FACTOR: u32 = 50;

/// The readings of a process so far.
#[derive(Debug)]
pub struct Schedule {
    begun: Instant,
    is_in_parts: bool,
    /// The time of the last reading, and how long it took.
    last: Option<(Instant, Duration)>,
    highest_bytes: u64,
}

impl Schedule {
    /// Begins without readings. `is_in_parts` if they are written to a file whose oldest parts are removed.
    pub fn new(is_in_parts: bool) -> Self {
        Self { begun: Instant::now(), is_in_parts, last: None, highest_bytes: 0 }
    }

    /// Returns whether a reading is due `now`. `resident_bytes` is the resident memory as it was last seen.
    pub fn is_due(&self, now: Instant, resident_bytes: u64) -> bool {
        let Some((last, took)) = self.last else { return true };
        let since = now.duration_since(last);
        if since < took * MIN_PAUSE_FACTOR {
            return false;
        }
        let growth = (self.highest_bytes / 50).max(MIN_GROWTH_BYTES);
        let most = if self.is_in_parts { MAX_INTERVAL_IN_PARTS } else { Duration::MAX };
        let interval = (now.duration_since(self.begun) / 64).clamp(MIN_INTERVAL, most);
        resident_bytes >= self.highest_bytes.saturating_add(growth) || since >= interval
    }

    /// Notes a reading that began at `begun` and found this many resident bytes.
    pub fn note(&mut self, begun: Instant, resident_bytes: u64) {
        self.last = Some((begun, begun.elapsed()));
        self.highest_bytes = self.highest_bytes.max(resident_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_follow_growth_and_age() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut schedule = Schedule { begun, ..Schedule::new(false) };
        assert!(schedule.is_due(begun, 0));
        schedule.last = Some((begun, Duration::from_millis(1)));
        schedule.highest_bytes = 100 << 20;
        assert!(!schedule.is_due(after(49), 200 << 20), "readings take a fiftieth of the time");
        assert!(schedule.is_due(after(50), 102 << 20));
        assert!(!schedule.is_due(after(50), 101 << 20) && schedule.is_due(after(500), 0));
        schedule.last = Some((after(640_000), Duration::from_millis(1)));
        assert!(!schedule.is_due(after(649_000), 0) && schedule.is_due(after(651_000), 0));
    }

    #[test]
    fn a_limited_file_gets_readings_at_least_once_a_minute() {
        let begun = Instant::now();
        let last = begun + Duration::from_secs(1 << 20);
        let schedule = Schedule { begun, last: Some((last, Duration::ZERO)), ..Schedule::new(true) };
        assert!(schedule.is_due(last + Duration::from_secs(60), 0));
    }
}
