//! The height and time of a device's peak of live bytes. All reports take the peak from [`Peak::of`] and then use the
//! lifetimes of the blocks that were live at that moment.

use crate::estimate::{Estimate, Precision, Sum};
use crate::lifetimes::{Lifetime, is_estimate};
use crate::moment::Moment;
use crate::net::net;
use memtrack_model::answer::NameAnswer;
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::printable;
use serde::Serialize;

/// A device's highest total of live bytes, and the moment when it was first reached.
///
/// For a heap whose small blocks were sampled, the highest of many estimates is unreliable, because it is usually the
/// one with the largest error. Therefore, the moment of the peak is the one at which the recorder's own count was
/// highest, and [`Self::bytes`] is this count, which is a lower bound on the peak. In files without such a count, the
/// moment is the one with the highest lower bound, and the interval of [`Self::error`] is wide enough for the number of
/// moments that were compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Peak {
    /// The live bytes at the peak. If small blocks were sampled, this is the recorder's own count, and the peak is at
    /// least this high.
    #[serde(rename = "live_bytes")]
    pub bytes: u64,
    /// The margin of error of the live bytes; null if they are exact. The true peak lies within its interval, even if it was
    /// at another moment. The interval has no upper end if the recording is incomplete.
    #[serde(rename = "live_bytes_error")]
    pub error: Estimate,
    /// The time of the peak in seconds; null if the peak was before the first event or the file does not record times.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` of the recording, or `first_event`.
    #[serde(rename = "seconds_since")]
    pub since: Since,
    /// The phase of the event that reached the peak; null if there is none. [`Peak::of`] does not look for it.
    #[serde(serialize_with = "serialize_only_name")]
    pub phase: Option<String>,
    /// The operator of the event that reached the peak; null if there is none. [`Peak::of`] does not look for it.
    #[serde(serialize_with = "serialize_only_name")]
    pub operator: Option<String>,
    /// Whether the peak may have been higher than reported because small blocks were sampled.
    pub estimated: bool,
    /// The row of the event that reached the peak; `None` if the level before the first event was never exceeded.
    #[serde(skip)]
    pub row: Option<usize>,
    /// The time of the peak in ticks of the recorder's clock; `None` if [`Self::row`] is `None` or the file does not
    /// record times.
    #[serde(skip)]
    pub ticks: Option<u64>,
    /// The event that reached the peak, as its index in the device's trace; `None` if [`Self::row`] is `None`.
    #[serde(skip)]
    pub event: Option<usize>,
    /// Like `error`, but only for the time up to the last recorded event. Until then, live bytes never exceeded the
    /// upper bound of this interval.
    #[serde(skip)]
    pub recorded: Estimate,
}

/// Serializes a name; as null if there is only a reason why there is none.
fn serialize_only_name<S: serde::Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().and_then(|text| NameAnswer::from_text(text).name).serialize(to)
}

/// A level of live bytes, and the event that reached it.
#[derive(Clone, Copy, Debug)]
struct Level {
    bytes: f64,
    row: Option<usize>,
    /// The time in ticks, if it is known more precisely than from the event in the row.
    ticks: Option<u64>,
}

impl Peak {
    /// Finds the peak of `device`; `lifetimes` must be the lifetimes of all of the device's blocks.
    pub fn of(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Self {
        let estimated = is_estimate(snapshot, device, lifetimes);
        let (reached, error) = match estimated {
            false => {
                let reached = find_highest_level(snapshot, lifetimes, usize::MAX);
                (reached, Estimate::exact(reached.bytes))
            }
            true => estimate_peak(snapshot, device, lifetimes),
        };
        let timed = reached.row.filter(|&row| snapshot.has_time(row));
        let ticks = timed.map(|row| reached.ticks.unwrap_or(snapshot.events.ticks[row]));
        Self {
            bytes: reached.bytes as u64,
            row: reached.row,
            ticks,
            event: reached.row.map(|row| Moment::last_event_of(snapshot, device, row)),
            seconds: ticks.map(|ticks| snapshot.clock.seconds_since_start(ticks)),
            since: snapshot.seconds_since(),
            phase: None,
            operator: None,
            estimated: !error.is_exact(),
            error: error.with_completeness(snapshot.meta.complete),
            recorded: error,
        }
    }

    /// Returns whether [`Self::bytes`] is the recorder's count, which means that the peak may have been higher.
    pub fn is_counted(&self) -> bool {
        self.error.counted
    }

    /// Formats the time of the peak for the end of a sentence: in seconds or, if the file does not record times, as an
    /// event number.
    pub fn format_when(&self) -> String {
        let counted = if self.is_counted() { "counted " } else { "" };
        match (self.seconds, self.event) {
            (Some(seconds), _) => format!("{counted}{}", self.since.moment(seconds)),
            (None, Some(event)) => format!("{counted}after event {event}"),
            (None, None) => "before the first event".to_owned(),
        }
    }

    /// Formats the peak as a single line, with the phase and operator of the event that reached it if they are known.
    pub fn format_line(&self) -> String {
        let what = format!("Peak: {} live", self.error.as_bytes(self.bytes));
        let when = self.format_when();
        match (&self.phase, &self.operator) {
            // Files without scopes have no operator to show here.
            (Some(phase), Some(operator)) if !(phase.starts_with('(') && operator.starts_with('(')) => {
                let (phase, operator) = (phase.trim_matches(['(', ')']), printable(operator));
                format!("{what}, {when}, in {operator} ({phase})")
            }
            _ => format!("{what}, {when}"),
        }
    }
}

/// Returns the highest level that all of these blocks reached together.
pub fn highest_recorded<'a>(snapshot: &Snapshot, lifetimes: impl IntoIterator<Item = &'a Lifetime>) -> u64 {
    find_highest_level(snapshot, lifetimes, usize::MAX).bytes as u64
}

/// Returns the highest level that recorded blocks reached up to the event in row `last`.
fn find_highest_level<'a>(
    snapshot: &Snapshot,
    lifetimes: impl IntoIterator<Item = &'a Lifetime>,
    last: usize,
) -> Level {
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
    Level { bytes: u64::try_from(highest).unwrap_or(u64::MAX) as f64, row, ticks: None }
}

/// Returns the peak of a heap whose small blocks were sampled, along with its error.
fn estimate_peak(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> (Level, Estimate) {
    let rows = || snapshot.events.rows_of(device);
    let last = rows().last();
    let dropped = snapshot.exact_counts(device).map_or(0, |counts| counts.dropped);
    // Memory from before the recording was live until it was freed. The recorder's count does not include it, but
    // subtracts it when it is freed, so its bytes are added to the count.
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
            .map(|(ticks, before)| last_row_before(snapshot, device, ticks, before))
    });
    let mut reached: Vec<Level> = Vec::new();
    let mut high = 0.0_f64;
    // The last row that the recorder's count covers, so that only samples describe the rows after it. `Some(None)` if
    // the count covers no row, and `None` if it covers the whole trace.
    let mut unknown_from = Some(None);
    if let (Some(mark), Some([at, since, until])) = (mark, moments) {
        // Before the recorder's first reading, every block was recorded.
        reached.extend(since.map(|since| find_highest_level(snapshot, lifetimes, since)));
        high = reached.first().map_or(0.0, |exact| exact.bytes).max(counted(mark.most_bytes));
        // If the events around the counted moment are missing, the moment cannot be located in the trace, so only its
        // bytes are used.
        let is_gone = at.is_none() && dropped > 0;
        if !is_gone {
            reached.push(Level { bytes: counted(mark.bytes), row: at, ticks: Some(mark.ticks) });
            // In PyTorch's format, a free is two events, of which only the first one, the request, changes the live
            // bytes.
            let is_second = |row: usize| snapshot.events.action[row] == Action::FreeCompleted;
            let is_later = rows().any(|row| Some(row) > until && !is_second(row));
            unknown_from = is_later.then_some(until);
        }
    }
    let guess = unknown_from.map(|from| find_highest_certain_level(snapshot, device, lifetimes, from));
    if let Some((guess, error)) = &guess {
        // The other levels are exact or lower bounds, so the estimate is compared with them by its lower bound.
        reached.push(Level { bytes: error.low, ..*guess });
        high = high.max(error.high);
    }
    if let Some(net) = net(snapshot, device) {
        let bytes = u64::try_from(net.bytes).unwrap_or(0) as f64;
        reached.push(Level { bytes, row: last, ticks: None });
        high = high.max(bytes);
    }
    // Among equal levels, the first one wins.
    let none = Level { bytes: 0.0, row: None, ticks: None };
    let best = reached.into_iter().reduce(|best, one| if one.bytes > best.bytes { one } else { best });
    let best = best.unwrap_or(none);
    let certain = mark.map_or(0.0, |mark| counted(mark.bytes)).max(best.bytes);
    match guess {
        // The best moment is the one that was estimated from samples, so the recorder has no count for it.
        Some((guess, error)) if error.low == best.bytes && guess.row == best.row => {
            let error =
                Estimate { high: high.max(error.value), bound: high.max(error.value), ..error }.as_total();
            (Level { bytes: guess.bytes.max(certain), ..guess }, error.at_least(certain))
        }
        // The count is above the samples' upper bound, so the peak has no valid upper bound.
        Some((_, error)) if error.high < certain && mark.is_none() => {
            (Level { bytes: certain, ..best }, Estimate::between(certain, f64::INFINITY))
        }
        _ => (Level { bytes: certain, ..best }, Estimate::between(certain, high)),
    }
}

/// Returns the row of the last event before a moment: the last of the first `before` events if that number is known, or
/// else the last event whose time is at most `ticks`.
fn last_row_before(snapshot: &Snapshot, device: DeviceId, ticks: u64, before: Option<u64>) -> Option<usize> {
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

/// Returns the moment after row `from` at which the samples give the highest lower bound, and the estimate of the peak
/// after that row. The estimate's interval contains the true value with 95 % confidence, although many moments are
/// compared.
fn find_highest_certain_level(
    snapshot: &Snapshot,
    device: DeviceId,
    lifetimes: &[Lifetime],
    from: Option<usize>,
) -> (Level, Estimate) {
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
    let mut best = (from, precision.estimate_bytes_of_many(&live, deviations));
    let mut high = best.1.high;
    for (at, change) in changes.into_iter().enumerate() {
        let [ended, begun] = change.map(|place| lifetimes.get(place as usize));
        if let Some(one) = ended {
            live.remove(one.size_bytes as f64, one.blocks);
        }
        let Some(one) = begun else { continue };
        live.add(one.size_bytes as f64, one.blocks);
        let now = precision.estimate_bytes_of_many(&live, deviations);
        high = high.max(now.high);
        if now.low > best.1.low {
            best = (Some(first + at), now);
        }
    }
    // Recompute the sums for the best moment, without accumulated rounding errors.
    let (row, mut live, mut bytes) = (best.0, Sum::default(), 0u64);
    for one in lifetimes.iter().filter(|one| one.is_live_after(row)) {
        live.add(one.size_bytes as f64, one.blocks);
        bytes = bytes.saturating_add(one.bytes);
    }
    let error = precision.estimate_bytes_of_many(&live, deviations);
    let high = high.max(error.high);
    (Level { bytes: bytes as f64, row, ticks: None }, Estimate { high, bound: high, ..error })
}
