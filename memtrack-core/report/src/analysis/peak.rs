//! How high a device's live bytes rose, and when. [`Peak::of`] is what every report takes it from; then
//! they ask which lifetimes were live at that moment.

use super::estimate::{Estimate, Precision, Sum};
use super::lifetimes::{Lifetime, is_estimate};
use super::net::net;
use memtrack_model::answer::{ErrorAnswer, NameAnswer};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::printable;
use serde::Serialize;

/// The highest sum of live bytes of a device, and when it was first reached.
///
/// Of a heap whose small blocks were sampled the highest of many estimates says little: mostly it is the one that is furthest off.
/// So the moment is the one at which the recorder counted most, the number is that count, and the peak is not below it. In
/// files without that count, the moment is the one at which most was live for certain, and the interval allows for having looked at
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Peak {
    /// Live bytes at the peak; of a sampled heap, at least.
    pub bytes: u64,
    /// The row of the event that reached it; none when nothing later exceeded what was live before the first event.
    pub row: Option<usize>,
    /// Seconds, counted from [`Self::since`]; none when [`Self::row`] is.
    pub seconds: Option<f64>,
    /// What the seconds are counted from.
    pub since: Since,
    /// Whether the number is not exact, because small blocks were sampled.
    pub estimated: bool,
    /// How far off the number may be: how high the peak may have been, whenever that was.
    pub error: Estimate,
}

/// A level that was reached, and after which row.
#[derive(Clone, Copy, Debug)]
struct Reached {
    bytes: f64,
    row: Option<usize>,
    /// When, where that is known better than by the row.
    ticks: Option<u64>,
}

impl Peak {
    /// The peak of `device` over `lifetimes`, which are all of its blocks.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        let estimated = is_estimate(snapshot, device, lifetimes);
        let (reached, error) = match estimated {
            false => {
                let reached = highest(snapshot, lifetimes, usize::MAX);
                (reached, Estimate::exact(reached.bytes))
            }
            true => sampled(snapshot, device, lifetimes),
        };
        let ticks = reached.row.map(|row| reached.ticks.unwrap_or(snapshot.events.ticks[row]));
        Self {
            bytes: reached.bytes as u64,
            row: reached.row,
            seconds: ticks.map(|ticks| snapshot.clock.seconds_since_start(ticks)),
            since: snapshot.seconds_since(),
            estimated: !error.is_exact(),
            error,
        }
    }

    /// Whether the number is what the recorder counted, and the peak may have been higher.
    pub(super) fn is_counted(&self) -> bool {
        self.error.counted
    }

    /// When it was, as the end of a sentence.
    pub(super) fn when(&self, seconds: f64) -> String {
        let counted = if self.is_counted() { "counted " } else { "" };
        format!("{counted}{}", self.since.moment(seconds))
    }

    /// The peak in one line; `place` is the phase and the operator of the event that reached it.
    pub(super) fn described(&self, place: Option<&(String, String)>) -> String {
        let what = format!("Peak: {} live", self.error.as_bytes(self.bytes));
        let when = |seconds| self.when(seconds);
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
    /// Live bytes then. While small blocks were sampled, what the recorder counted: the peak is not lower.
    pub live_bytes: u64,
    /// How far off they may be: between its ends is the highest that was live, at whichever moment.
    pub live_bytes_error: Option<ErrorAnswer>,
    /// When it was; null: before the first event.
    pub seconds: Option<f64>,
    /// What the seconds are counted from: `start` of the recording, or `first_event`.
    pub seconds_since: &'static str,
    /// The phase of the event that reached it.
    pub phase: Option<String>,
    /// Its operator.
    pub operator: Option<String>,
    /// Whether the peak may have been higher, because small blocks were sampled.
    pub estimated: bool,
}

/// The highest level of the recorded blocks, up to the event of row `last`.
fn highest(snapshot: &Snapshot, lifetimes: &[Lifetime], last: usize) -> Reached {
    let mut live = 0i128;
    let mut changes = vec![0i128; snapshot.events.len().min(last.saturating_add(1))];
    for lifetime in lifetimes {
        match lifetime.from {
            Some(row) => {
                if let Some(change) = changes.get_mut(row) {
                    *change += i128::from(lifetime.bytes);
                }
            }
            None => live += i128::from(lifetime.bytes),
        }
        if let Some(change) = lifetime.to.and_then(|row| changes.get_mut(row)) {
            *change -= i128::from(lifetime.bytes);
        }
    }
    let (mut highest, mut row) = (live, None);
    for (at, change) in changes.into_iter().enumerate() {
        live += change;
        if live > highest {
            (highest, row) = (live, Some(at));
        }
    }
    Reached { bytes: u64::try_from(highest).unwrap_or(u64::MAX) as f64, row, ticks: None }
}

/// The peak of a heap whose small blocks were sampled, and how high it may have been.
fn sampled(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> (Reached, Estimate) {
    let rows = || snapshot.events.rows_of(device);
    let last = rows().last();
    let dropped = snapshot.exact_counts(device).map_or(0, |counts| counts.dropped);
    // What was there before recording began was live until it was freed, and counts as given back from then on.
    let is_older = |one: &&Lifetime| one.from.is_none() && one.to.is_some() && !one.known;
    let older: u64 = match dropped {
        0 => lifetimes.iter().filter(is_older).fold(0, |sum, one| sum.saturating_add(one.bytes)),
        _ => 0,
    };
    let counted = |bytes: u64| bytes.saturating_add(older) as f64;
    let mark = snapshot.counted_peak.filter(|_| snapshot.is_heap(device));
    let moments = mark.map(|mark| {
        let [at, since, until] = mark.events_before.map_or([None; 3], |numbers| numbers.map(Some));
        [(mark.ticks, at), (mark.since_ticks, since), (mark.until_ticks, until)]
            .map(|(ticks, before)| row_before(snapshot, device, ticks, before))
    });
    let mut reached: Vec<Reached> = Vec::new();
    let mut high = 0.0_f64;
    // Of what follows nothing was counted, or nothing is known.
    let mut unknown_from = Some(None);
    if let (Some(mark), Some([at, since, until])) = (mark, moments) {
        // Up to the first look every block was recorded.
        reached.extend(since.map(|since| highest(snapshot, lifetimes, since)));
        high = reached.first().map_or(0.0, |exact| exact.bytes).max(counted(mark.most_bytes));
        // A moment whose events are gone says only how much there was.
        let is_gone = at.is_none() && dropped > 0;
        if !is_gone {
            reached.push(Reached { bytes: counted(mark.bytes), row: at, ticks: Some(mark.ticks) });
            unknown_from = (until < last).then_some(until);
        }
    }
    let guess = unknown_from.map(|from| most_certain(snapshot, device, lifetimes, from));
    if let Some((guess, error)) = &guess {
        reached.push(Reached { bytes: error.low, ..*guess });
        high = high.max(error.high);
    }
    if let Some(net) = net(snapshot, device) {
        let bytes = counted(u64::try_from(net.bytes).unwrap_or(0));
        reached.push(Reached { bytes, row: last, ticks: None });
        high = high.max(bytes);
    }
    // Of equal ones the first.
    let none = Reached { bytes: 0.0, row: None, ticks: None };
    let best = reached.into_iter().reduce(|best, one| if one.bytes > best.bytes { one } else { best });
    let best = best.unwrap_or(none);
    let certain = mark.map_or(0.0, |mark| counted(mark.bytes)).max(best.bytes);
    match guess {
        // Nobody counted at that moment.
        Some((guess, error)) if error.low == best.bytes && guess.row == best.row => {
            let error = Estimate { high: high.max(error.value), bound: high.max(error.value), ..error };
            let error = error.at_least(certain);
            (Reached { bytes: error.value.max(certain), ..guess }, error)
        }
        _ => (Reached { bytes: certain, ..best }, Estimate::between(certain, high)),
    }
}

/// The row of the last event up to a moment: one stamped up to `ticks`, or where it is known how many events come before, the last
/// of those.
fn row_before(snapshot: &Snapshot, device: DeviceId, ticks: u64, before: Option<u64>) -> Option<usize> {
    let mut rows = snapshot.events.rows_of(device);
    match before {
        Some(count) => rows.take(usize::try_from(count).unwrap_or(usize::MAX)).last(),
        None => {
            let mut last = None;
            while let Some(row) = rows.next().filter(|&row| snapshot.events.ticks[row] <= ticks) {
                last = Some(row);
            }
            last
        }
    }
}

/// The moment from the event of row `from` on at which most was live for certain, as far as samples say so, and the highest level of
/// all of them: its interval holds the truth in 95 of 100 cases though the moments are many.
fn most_certain(
    snapshot: &Snapshot,
    device: DeviceId,
    lifetimes: &[Lifetime],
    from: Option<usize>,
) -> (Reached, Estimate) {
    const NONE: u32 = u32::MAX;
    let precision = Precision::of(snapshot, device, lifetimes);
    let first = from.map_or(0, |row| row + 1);
    let mut changes = vec![[NONE; 2]; snapshot.events.len().saturating_sub(first)];
    let mut live = Sum::default();
    for (place, one) in lifetimes.iter().enumerate() {
        if one.is_live_after(from) {
            live.add(one.size_bytes as f64, one.blocks);
        }
        for (which, row) in [one.to, one.from].into_iter().enumerate() {
            if let Some(change) =
                row.and_then(|row| row.checked_sub(first)).and_then(|row| changes.get_mut(row))
            {
                change[which] = place as u32;
            }
        }
    }
    let deviations = Precision::deviations_of_many(changes.len());
    let mut best = (from, precision.bytes_of_many(&live, deviations));
    let mut high = best.1.high;
    for (at, change) in changes.into_iter().enumerate() {
        let [ended, begun] = change.map(|place| lifetimes.get(place as usize));
        if let Some(one) = ended {
            live.take_out(one.size_bytes as f64, one.blocks);
        }
        let Some(one) = begun else { continue };
        live.add(one.size_bytes as f64, one.blocks);
        let now = precision.bytes_of_many(&live, deviations);
        high = high.max(now.high);
        if now.low > best.1.low {
            best = (Some(first + at), now);
        }
    }
    let (row, error) = best;
    (Reached { bytes: error.value, row, ticks: None }, Estimate { high, bound: high, ..error })
}
