//! How high a device's live bytes rose, and when. [`Peak::of`] walks the lifetimes once; reports then ask which of them
//! were live at that moment.

use super::estimate::{Estimate, Precision, Sum};
use super::lifetimes::Lifetime;
use memtrack_model::answer::{ErrorAnswer, NameAnswer};
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::printable;
use serde::Serialize;

/// The highest sum of live bytes of a device, and when it was first reached.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Peak {
    /// Live bytes at the peak.
    pub bytes: u64,
    /// The row of the event that reached it; none when nothing later exceeded what was live before the first event.
    pub row: Option<usize>,
    /// Seconds, counted from [`Self::since`]; none when [`Self::row`] is.
    pub seconds: Option<f64>,
    /// What the seconds are counted from.
    pub since: Since,
    /// Whether sampled blocks were live at the peak, which makes the number an estimate.
    pub estimated: bool,
    /// How far off the number may be, provided that the peak was at that moment.
    pub error: Estimate,
}

impl Peak {
    /// The peak over `lifetimes`, which are those of one device of `snapshot`.
    pub fn of(snapshot: &Snapshot, lifetimes: &[Lifetime]) -> Self {
        let mut live = 0i128;
        let mut changes = vec![0i128; snapshot.events.len()];
        for lifetime in lifetimes {
            match lifetime.from {
                Some(row) => changes[row] += i128::from(lifetime.bytes),
                None => live += i128::from(lifetime.bytes),
            }
            if let Some(row) = lifetime.to {
                changes[row] -= i128::from(lifetime.bytes);
            }
        }
        let (mut highest, mut row) = (live, None);
        for (at, change) in changes.into_iter().enumerate() {
            live += change;
            if live > highest {
                (highest, row) = (live, Some(at));
            }
        }
        let seconds = row.map(|row| snapshot.clock.seconds_since_start(snapshot.events.ticks[row]));
        let estimated = lifetimes.iter().any(|lifetime| lifetime.estimated && lifetime.is_live_after(row));
        let bytes = u64::try_from(highest).unwrap_or(u64::MAX);
        let since = snapshot.seconds_since();
        let mut peak = Self { bytes, row, seconds, since, estimated, error: Estimate::default() };
        peak.judge(&Precision::of_some_device(snapshot, lifetimes), lifetimes);
        peak
    }

    /// Works out the error with a recording's `precision`.
    pub(super) fn judge(&mut self, precision: &Precision, lifetimes: &[Lifetime]) {
        let mut sum = Sum::default();
        for lifetime in lifetimes.iter().filter(|lifetime| lifetime.is_live_after(self.row)) {
            sum.add(lifetime.size_bytes as f64, lifetime.blocks);
        }
        self.error = precision.bytes(&sum);
    }

    /// The peak in one line; `place` is the phase and the operator of the event that reached it.
    pub(super) fn described(&self, place: Option<&(String, String)>) -> String {
        let what = format!("Peak: {} live", self.error.as_bytes(self.bytes));
        let when = |seconds| self.since.moment(seconds);
        match (self.seconds, place) {
            // A file without scopes has nothing to say here.
            (Some(seconds), Some((phase, operator)))
                if phase.starts_with('(') && operator.starts_with('(') =>
            {
                format!("{what}, {}", when(seconds))
            }
            (Some(seconds), Some((phase, operator))) => {
                let (phase, operator) = (phase.trim_matches(['(', ')']), printable(operator));
                format!("{what}, {}, in {operator} ({phase})", when(seconds))
            }
            _ => format!("{what}, before the first event"),
        }
    }

    /// The peak as answers have it; `place` as in [`Self::described`].
    pub(super) fn answer(&self, place: Option<&(String, String)>) -> PeakAnswer {
        let name = |text: &String| NameAnswer::shown(text).name;
        PeakAnswer {
            live_bytes: self.bytes,
            live_bytes_error: self.error.answer(),
            seconds: self.seconds,
            seconds_since: self.since.name(),
            phase: place.and_then(|(phase, _)| name(phase)),
            operator: place.and_then(|(_, operator)| name(operator)),
            estimated: self.estimated,
        }
    }
}

/// When the most bytes of a device were live.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PeakAnswer {
    /// Live bytes then.
    pub live_bytes: u64,
    /// How far off they may be, provided that the peak was at that moment.
    pub live_bytes_error: Option<ErrorAnswer>,
    /// When it was; null: before the first event.
    pub seconds: Option<f64>,
    /// What the seconds are counted from: `start` of the recording, or `first_event`.
    pub seconds_since: &'static str,
    /// The phase of the event that reached it.
    pub phase: Option<String>,
    /// Its operator.
    pub operator: Option<String>,
    /// Whether sampled blocks were live then.
    pub estimated: bool,
}
