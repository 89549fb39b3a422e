//! Decides when a dump is due: once when something rises above its threshold, and again only after it has fallen clearly
//! below, or has been calm; and never twice within a pause.

use std::time::Duration;

/// What a source reports now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// At or above the threshold.
    Above,
    /// Neither above nor clearly below, or unknown.
    Between,
    /// Clearly below the threshold: the next rise is another one.
    Below,
}

impl Reading {
    /// Compares a value with a threshold. Clearly below means below nine tenths of it.
    pub(super) fn of(value: f64, threshold: f64) -> Self {
        match value {
            value if value >= threshold => Self::Above,
            value if value < 0.9 * threshold => Self::Below,
            _ => Self::Between,
        }
    }
}

/// The time without an event after which a source of events counts as calm.
pub(super) const CALM: Duration = Duration::from_secs(30);

/// A source that reports events rather than a level: it is above its threshold when an event has just happened, and below
/// it after [`CALM`] without one.
#[derive(Debug, Default)]
pub(super) struct EventSource {
    last_event: Option<Duration>,
}

impl EventSource {
    /// Returns the reading at `now`.
    pub(super) fn read(&mut self, now: Duration, has_happened: bool) -> Reading {
        if has_happened {
            self.last_event = Some(now);
            return Reading::Above;
        }
        match self.last_event {
            Some(last) if now.saturating_sub(last) < CALM => Reading::Between,
            _ => Reading::Below,
        }
    }
}

/// The state of all sources: whether the next rise of each causes a dump, and when the last dump was.
#[derive(Debug)]
pub(super) struct Rises {
    armed: Vec<bool>,
    last_dump: Option<Duration>,
    pause: Duration,
}

impl Rises {
    /// Creates the state for a number of sources that are all below their thresholds. Dumps are at least `pause` apart.
    pub(super) fn new(sources: usize, pause: Duration) -> Self {
        Self { armed: vec![true; sources], last_dump: None, pause }
    }

    /// Returns the first source whose rise causes a dump now. A source that rises during the pause causes it afterwards if it
    /// is still above its threshold.
    pub(super) fn cause(&mut self, now: Duration, readings: &[Reading]) -> Option<usize> {
        for (armed, reading) in self.armed.iter_mut().zip(readings) {
            *armed |= *reading == Reading::Below;
        }
        if self.last_dump.is_some_and(|last| now.saturating_sub(last) < self.pause) {
            return None;
        }
        readings.iter().zip(&self.armed).position(|(reading, armed)| *armed && *reading == Reading::Above)
    }

    /// Notes that a dump was written, or could not be written, at `now`. It stands for all sources that were above their
    /// thresholds.
    pub(super) fn dumped(&mut self, now: Duration, readings: &[Reading]) {
        self.last_dump = Some(now);
        for (armed, reading) in self.armed.iter_mut().zip(readings) {
            *armed &= *reading != Reading::Above;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reading::{Above, Below, Between};
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_rise_causes_one_dump_until_the_value_has_fallen_clearly_below() {
        let mut rises = Rises::new(1, seconds(60));
        let mut dumps = Vec::new();
        // Rises, wavers around the threshold, falls, rises again.
        for (minute, value) in [50.0, 91.0, 85.0, 92.0, 95.0, 80.0, 89.0, 90.0].into_iter().enumerate() {
            let (now, readings) = (seconds(60 * minute as u64), [Reading::of(value, 90.0)]);
            if rises.cause(now, &readings).is_some() {
                rises.dumped(now, &readings);
                dumps.push(minute);
            }
        }
        assert_eq!(dumps, [1, 7]);
    }

    #[test]
    fn dumps_keep_their_distance_and_a_rise_in_the_pause_is_not_forgotten() {
        let mut rises = Rises::new(2, seconds(60));
        assert_eq!(rises.cause(seconds(0), &[Above, Below]), Some(0));
        rises.dumped(seconds(0), &[Above, Below]);
        assert_eq!(rises.cause(seconds(10), &[Above, Above]), None);
        assert_eq!(rises.cause(seconds(61), &[Between, Above]), Some(1));
        rises.dumped(seconds(61), &[Between, Above]);
        assert_eq!(rises.cause(seconds(200), &[Above, Above]), None);
    }

    #[test]
    fn one_dump_stands_for_all_sources_above_their_thresholds() {
        let mut rises = Rises::new(2, seconds(0));
        assert_eq!(rises.cause(seconds(0), &[Above, Above]), Some(0));
        rises.dumped(seconds(0), &[Above, Above]);
        assert_eq!(rises.cause(seconds(1), &[Above, Above]), None);
    }

    #[test]
    fn events_count_as_one_rise_until_there_was_none_for_a_while() {
        let mut events = EventSource::default();
        assert_eq!(events.read(seconds(0), false), Below);
        assert_eq!(events.read(seconds(1), true), Above);
        assert_eq!(events.read(seconds(2), false), Between);
        assert_eq!(events.read(seconds(30), false), Between);
        assert_eq!(events.read(seconds(31), false), Below);
    }
}
