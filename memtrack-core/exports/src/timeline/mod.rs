//! Tracks memory over time, for formats with a time axis. This covers the times of events ([`Times`]), a device's bytes
//! after each event ([`DeviceTimeline`]), and the running scopes and ranges ([`scopes`], [`ranges`]).

pub(crate) mod ranges;
pub(crate) mod scopes;

use memtrack_blocks::lifetimes::{Lifetime, is_estimate, lifetimes};
use memtrack_blocks::origin::{Origin, Origins};
use memtrack_blocks::peak::Peak;
use memtrack_blocks::reserved::{has_reserved_bytes, reserved_over_time};
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId, ThreadId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::units::counted;
use std::collections::{BTreeMap, HashMap};

/// The times of events, in nanoseconds since the earliest time in the snapshot.
pub(crate) struct Times<'a> {
    snapshot: &'a Snapshot,
    /// The earliest time in the snapshot, in nanoseconds since the Unix epoch.
    pub(crate) start_ns: u64,
    /// Whether all events have a time. If not, an event's number is used as its time, in microseconds.
    pub(crate) known: bool,
}

impl<'a> Times<'a> {
    /// Creates the times of a snapshot.
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let oldest_event = snapshot.events.ticks.iter().copied().min();
        let oldest_mark = snapshot.marks.rows.iter().map(|mark| mark.ticks).min();
        let readings = snapshot.driver.iter().map(|reading| reading.ticks).min();
        let ranges = snapshot.pytorch.as_deref().map(|pytorch| &pytorch.annotations);
        let oldest_range =
            ranges.and_then(|notes| (0..notes.len()).map(|row| notes.number(row, Key::TimeUs)).min());
        let known = snapshot.has_times();
        // If events have no times, the position of profiler ranges among them is unknown.
        let oldest_range = oldest_range.filter(|_| known);
        let oldest = [oldest_event, oldest_mark, readings, oldest_range].into_iter().flatten().min();
        let oldest = oldest.map(|ticks| snapshot.clock.time_ns(ticks));
        // A recording starts before its first event.
        let begins = (snapshot.pytorch.is_none() || oldest.is_none()).then_some(snapshot.clock.first.1);
        Self { snapshot, start_ns: oldest.into_iter().chain(begins).min().unwrap_or(0), known }
    }

    /// Returns the time of `ticks`.
    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        // No format can hold more than 63 bits.
        self.snapshot.clock.time_ns(ticks).saturating_sub(self.start_ns).min(i64::MAX as u64)
    }

    /// Returns the time of the newest event.
    pub(crate) fn end_ns(&self) -> u64 {
        self.snapshot.events.ticks.iter().max().map_or(0, |&ticks| self.ns(ticks))
    }
}

/// A monotonic clock for one list of events. It is needed because times in PyTorch's traces can go back a little.
#[derive(Default)]
pub(crate) struct MonotonicClock(u64);

impl MonotonicClock {
    /// Returns `ns`, or the latest time so far if that is later.
    pub(crate) fn advance_to(&mut self, ns: u64) -> u64 {
        self.0 = self.0.max(ns);
        self.0
    }
}

/// The bytes of a device over time.
pub(crate) struct DeviceTimeline<'a> {
    snapshot: &'a Snapshot,
    pub(crate) device: DeviceId,
    /// The device's name in reports.
    pub(crate) name: String,
    /// The lifetimes of the device's blocks.
    pub(crate) lifetimes: Vec<Lifetime>,
    /// The distinct origins of blocks.
    pub(crate) origins: Vec<Origin>,
    /// The index in [`Self::origins`] for each of [`Self::lifetimes`].
    pub(crate) origin_of: Vec<u32>,
    /// The peak of the device's live requested bytes.
    pub(crate) peak: Peak,
    /// Whether the numbers are estimates, because blocks were sampled.
    pub(crate) estimated: bool,
    /// The rows of the device's events.
    rows: Vec<u32>,
}

impl<'a> DeviceTimeline<'a> {
    /// Creates the timeline for `device`, or returns `None` if the snapshot has no data on it.
    pub(crate) fn of(snapshot: &'a Snapshot, device: DeviceId) -> Option<Self> {
        let rows: Vec<u32> = snapshot.events.rows_of(device).map(|row| row as u32).collect();
        let lifetimes = lifetimes(snapshot, device);
        let has_segments = snapshot.segments.iter().any(|segment| segment.device == device);
        if rows.is_empty() && lifetimes.is_empty() && !has_segments {
            return None;
        }
        let by_lifetime = Origins::of(snapshot, &lifetimes);
        let mut known: HashMap<Origin, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut origins = Vec::new();
        let mut index_of = |origin| {
            *known.entry(origin).or_insert_with(|| {
                origins.push(origin);
                origins.len() as u32 - 1
            })
        };
        let origin_of = lifetimes.iter().map(|lifetime| index_of(by_lifetime.origin(lifetime))).collect();
        Some(Self {
            snapshot,
            origins,
            origin_of,
            device,
            name: snapshot.device_name(device),
            peak: Peak::of(snapshot, device, &lifetimes),
            estimated: is_estimate(snapshot, device, &lifetimes),
            lifetimes,
            rows,
        })
    }

    /// Returns the rows of the device's events, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().map(|&row| row as usize)
    }

    /// Returns the live requested bytes before the first event, and after each row that changed them. Their maximum is
    /// [`Self::peak`].
    pub(crate) fn live_bytes(&self) -> (u64, Vec<(usize, u64)>) {
        let index_of = |row: usize| self.rows.binary_search(&(row as u32)).ok();
        let mut changes = vec![0i128; self.rows.len()];
        let mut live = 0i128;
        for lifetime in &self.lifetimes {
            match lifetime.from {
                None => live += i128::from(lifetime.bytes),
                Some(row) => {
                    index_of(row).into_iter().for_each(|at| changes[at] += i128::from(lifetime.bytes))
                }
            }
            let end = lifetime.to.and_then(index_of);
            end.into_iter().for_each(|at| changes[at] -= i128::from(lifetime.bytes));
        }
        let clamped = |bytes: i128| u64::try_from(bytes.max(0)).unwrap_or(u64::MAX);
        let before = clamped(live);
        let after = self.rows().zip(changes).filter(|(_, change)| *change != 0).map(|(row, change)| {
            live += change;
            (row, clamped(live))
        });
        (before, after.collect())
    }

    /// Returns the reserved bytes in the same form as [`Self::live_bytes`], or `None` if no memory was reserved or the
    /// file does not contain segments.
    pub(crate) fn reserved_bytes(&self) -> Option<(u64, Vec<(usize, u64)>)> {
        if !has_reserved_bytes(self.snapshot, self.device) {
            return None;
        }
        let (before, after) = reserved_over_time(self.snapshot, self.device);
        Some((before, after.collect()))
    }

    /// Returns each time at which the device's free bytes were queried, in ticks, and the number of free bytes at that
    /// time. The sources are the driver readings and the out-of-memory events.
    pub(crate) fn free_bytes(&self) -> Vec<(u64, u64)> {
        let readings = self.snapshot.driver.iter().filter(|reading| reading.device == self.device);
        let mut free: Vec<(u64, u64)> = readings.map(|reading| (reading.ticks, reading.free_bytes)).collect();
        if self.device.is_accelerator() {
            let at_row =
                |row: usize| Some((self.snapshot.events.ticks[row], self.snapshot.oom_free_bytes(row)?));
            free.extend(self.oom_rows().filter_map(at_row));
        }
        free.sort_unstable();
        free.dedup();
        free
    }

    /// Returns the rows of out-of-memory events.
    pub(crate) fn oom_rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows().filter(|&row| self.snapshot.events.action[row] == Action::Oom)
    }

    /// Returns a description of the numbers that [`Self::live_bytes`] returns.
    pub(crate) fn live_description(&self) -> &'static str {
        match self.estimated {
            true => {
                "Bytes that were live, as requested: an estimate from sampled blocks, each with the bytes it stands for"
            }
            false => "Bytes that were live, as requested: what the sizes of the events add up to",
        }
    }

    /// Returns the device's name, with a note if the numbers are estimates.
    pub(crate) fn format_heading(&self) -> String {
        if self.estimated { format!("{} (estimates)", self.name) } else { self.name.clone() }
    }
}

/// The marks with one name on one thread.
pub(crate) struct MarkSeries<'a> {
    /// The name of the marks.
    pub(crate) name: &'a str,
    /// The thread of the marks.
    pub(crate) thread: ThreadId,
    /// The times of the marks in nanoseconds, as in [`Times`], in order. Two successive marks enclose an interval in the
    /// program, such as a step.
    pub(crate) ns: Vec<u64>,
}

/// Returns all of the program's marks, grouped by name and thread.
pub(crate) fn group_marks<'a>(snapshot: &'a Snapshot, times: &Times<'_>) -> Vec<MarkSeries<'a>> {
    let mut all: BTreeMap<(u32, ThreadId), Vec<u64>> = BTreeMap::new();
    for mark in &snapshot.marks.rows {
        all.entry((mark.name, mark.thread)).or_default().push(times.ns(mark.ticks));
    }
    let name_of = |name: u32| snapshot.marks.names.get(name as usize).map_or("", String::as_str);
    let series = all.into_iter().map(|((name, thread), mut ns)| {
        ns.sort_unstable();
        MarkSeries { name: name_of(name), thread, ns }
    });
    series.collect()
}

/// Returns the name of the program, without its folder, or a generic name if it is unknown.
pub(crate) fn program_name(snapshot: &Snapshot) -> &str {
    let name = memtrack_model::paths::file_name(&snapshot.meta.program);
    match (name.is_empty(), snapshot.pytorch.is_some()) {
        (false, _) => name,
        (true, true) => "PyTorch snapshot",
        (true, false) => "program",
    }
}

/// Returns the remarks that apply to the whole snapshot, as short sentences.
pub(crate) fn collect_remarks(snapshot: &Snapshot, times: &Times<'_>) -> Vec<String> {
    let mut remarks = vec![format!("memtrack {}", env!("CARGO_PKG_VERSION"))];
    if !times.known {
        remarks.push("events have no times: one microsecond stands for one event".to_owned());
    }
    if snapshot.has_samples() || snapshot.may_lack_small_blocks() {
        remarks.push("small blocks of the heap were sampled: its numbers are estimates".to_owned());
    }
    let dropped: u64 = snapshot.devices.iter().map(|counts| counts.dropped).sum();
    if dropped > 0 {
        let events = counted(dropped, "older event");
        remarks.push(format!("{events} not kept: what was allocated then counts as older than the trace"));
    }
    remarks
}
