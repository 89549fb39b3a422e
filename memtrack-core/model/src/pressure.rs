//! The signs that memory runs low, which a recorder watches for dumps.

use crate::units::human_bytes;
use std::fmt;
use std::time::Duration;

/// The time over which [`Pressure::Stall`] adds up stalls. Without privileges, a kernel accepts multiples of this.
pub const STALL_WINDOW: Duration = Duration::from_secs(2);

/// A sign that memory runs low.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Pressure {
    /// The memory in use reaches this share (above 0, at most 1) of the limit of the process's control group, or of a group
    /// around it: a container's limit. Version 2 (`memory.max`, or `memory.high` if that is lower) and version 1
    /// (`memory.limit_in_bytes`) are supported. As with Kubernetes' working set, file pages that have not been used lately do
    /// not count, because the kernel drops them first.
    Limit(f64),
    /// Some thread waits for memory for this long (at most 2 s) within 2 s: the kernel's pressure stall information, of the
    /// control group if it has any, otherwise of the whole machine.
    Stall(Duration),
    /// The control group reaches a limit or runs out of memory: the counts `high`, `max`, `oom` and `oom_kill` in
    /// `memory.events` of version 2, `memory.failcnt` of version 1. Pages of files count for these limits, too.
    LimitEvents,
    /// The resident set reaches this many bytes.
    ResidentBytes(u64),
}

impl IntoIterator for Pressure {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    /// Iterates over this sign alone, so that it can be passed where several can.
    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit(share) => write!(f, "{:.0} % of the limit", 100.0 * share),
            Self::Stall(time) => write!(f, "waiting for memory for {time:?} in {STALL_WINDOW:?}"),
            Self::LimitEvents => f.write_str("events of the limit"),
            Self::ResidentBytes(most) => write!(f, "{} resident", human_bytes(most)),
        }
    }
}

impl Pressure {
    /// Checks that the threshold is in its range.
    ///
    /// # Errors
    /// Returns the range if it is not.
    pub fn check(self) -> Result<(), String> {
        let why = match self {
            Self::Limit(share) if !(share > 0.0 && share <= 1.0) => {
                format!("the share of the limit must be above 0 and at most 1, not {share}")
            }
            Self::Stall(time) if time.is_zero() || time > STALL_WINDOW => {
                format!("the time of a stall must be above 0 and at most {STALL_WINDOW:?}, not {time:?}")
            }
            Self::ResidentBytes(0) => "a resident set of 0 bytes is always reached".to_owned(),
            _ => return Ok(()),
        };
        Err(why)
    }
}

/// A sign that was requested, and whether it is watched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchedSign {
    /// The sign.
    pub pressure: Pressure,
    /// What is watched, such as a file, or the reason why nothing is.
    pub watched: Result<String, String>,
}

impl WatchedSign {
    /// Creates the state of a sign.
    pub fn new(pressure: Pressure, watched: Result<String, String>) -> Self {
        Self { pressure, watched }
    }
}

impl fmt::Display for WatchedSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.watched {
            Ok(what) => write!(f, "{}: {what}", self.pressure),
            Err(why) => write!(f, "{}: not watched: {why}", self.pressure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_out_of_range_are_refused() {
        let second = Duration::from_secs(1);
        for good in
            [Pressure::Limit(1.0), Pressure::Stall(second), Pressure::LimitEvents, Pressure::ResidentBytes(1)]
        {
            assert_eq!(good.check(), Ok(()));
        }
        for bad in [
            Pressure::Limit(0.0),
            Pressure::Limit(90.0),
            Pressure::Limit(f64::NAN),
            Pressure::Stall(Duration::ZERO),
            Pressure::Stall(3 * second),
            Pressure::ResidentBytes(0),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_sign_that_is_not_watched_has_the_reason() {
        let sign = WatchedSign::new(Pressure::Limit(0.85), Err("there is no limit".to_owned()));
        assert_eq!(sign.to_string(), "85 % of the limit: not watched: there is no limit");
    }
}
