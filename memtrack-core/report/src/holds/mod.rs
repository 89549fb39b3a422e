//! Who holds memory: a paragraph that is printed when memory runs out, a snapshot is dumped or a run ends. It names the
//! three lines of the user's code that hold the most memory, each with its module and phase, as well as the cache, the
//! memory that memtrack does not track, the growth, and what to do first. Unknown numbers are omitted.
//!
//! The paragraph may be produced while a program is out of memory, so its cost is bounded:
//! [`HoldsQuery::symbol_time_limit`] limits the time for symbolizing functions. The largest holders are symbolized
//! first; when time runs out, all but the first eight are named after their operators. `groups` adds up and symbolizes
//! holders, `outside_blocks` covers memory outside of blocks, `advice` decides what to do first, and `text` formats the
//! paragraph.
//!
//! **Why is the paragraph not stored?** `memtrack run` and `memtrack summary` derive it from the files that a killed
//! program leaves behind. These files contain the out-of-memory event, the live blocks and the driver's reading, so
//! neither a field in the format nor a second file is needed. The paragraph is based only on the blocks that are held,
//! not on events: the growth is computed from the times at which these blocks were allocated.

mod advice;
mod groups;
mod outside_blocks;
#[cfg(test)]
mod tests;
mod text;

use groups::Groups;
use memtrack_blocks::device_blocks::DeviceBlocks;
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::lifetimes::{Lifetime, is_estimate};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::{HeldAtEnd, counted_at_end};
use memtrack_blocks::reserved::has_reserved_bytes;
use memtrack_frames::ownership::Rules;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::{Action, DeviceId, DeviceKind};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::{Frame, OutOfMemory};
use memtrack_symbols::Symbolizer;
use outside_blocks::HeldMoment;
pub use outside_blocks::{Cached, Untracked};
use serde::Serialize;
use std::time::Duration;

/// The maximum number of holders to list.
const MAX_HOLDERS: usize = 3;

/// The moment that the report describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeldAt {
    /// The current moment, or the moment of the snapshot.
    #[default]
    Now,
    /// The moment when a device last ran out of memory; the end if it never did.
    OutOfMemory,
    /// The moment when the device had the most live bytes.
    Peak,
    /// The moment when the program was killed.
    Killed,
    /// The end of a recording that was not closed: the program was killed, called `_exit`, or is still running.
    Cut,
}

/// The moment from which growth is counted, such as the last dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// The moment, in the snapshot's ticks.
    pub ticks: u64,
    /// The name of the moment, worded for the end of a sentence, as in `the last dump`.
    pub name: String,
    /// Whether this is the middle of the whole recording, chosen because the program has no marks.
    pub(crate) is_midpoint: bool,
}

impl Marker {
    /// Creates a marker for the moment `ticks`.
    pub fn new(ticks: u64, name: impl Into<String>) -> Self {
        Self { ticks, name: name.into(), is_midpoint: false }
    }
}

/// The parameters of a [`WhoHolds`] report.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HoldsQuery {
    /// The moment to describe.
    pub at: HeldAt,
    /// The request that failed, if memory has just run out.
    pub refused: Option<OutOfMemory>,
    /// The moment from which growth is counted if the program has no marks
    /// ([`Marks`](memtrack_model::snapshot::Marks)); `None` means the halfway point.
    pub marker: Option<Marker>,
    /// The time limit for symbolizing functions; `None` means no limit. A lookup in progress is not interrupted, and
    /// the stacks of the eight largest groups are always symbolized.
    pub symbol_time_limit: Option<Duration>,
    /// The rules that decide which frames are the user's.
    pub rules: Rules,
}

impl HoldsQuery {
    /// Describes the most important moment of a run that has ended: when it was killed, or else when it ran out of
    /// memory, or else its peak. A failed heap allocation does not count as running out of memory if the program
    /// continued, because some programs allocate until they find the limit.
    #[must_use]
    pub fn for_ended_run(snapshot: &Snapshot, was_killed: bool) -> Self {
        Self::at_moment(match was_killed {
            true => HeldAt::Killed,
            false if ran_out(snapshot) => HeldAt::OutOfMemory,
            false => HeldAt::Peak,
        })
    }

    /// Describes the moment `at`.
    #[must_use]
    pub fn at_moment(at: HeldAt) -> Self {
        Self { at, ..Self::default() }
    }

    /// Describes a request that has just failed.
    #[must_use]
    pub fn refused(mut self, oom: Option<OutOfMemory>) -> Self {
        self.refused = oom;
        self
    }

    /// Counts growth since `marker`.
    #[must_use]
    pub fn since(mut self, marker: Option<Marker>) -> Self {
        self.marker = marker;
        self
    }

    /// Limits the time for symbolizing functions.
    #[must_use]
    pub fn symbol_time_limit(mut self, limit: Duration) -> Self {
        self.symbol_time_limit = Some(limit);
        self
    }

    /// Sets the rules that decide which frames are the user's.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }
}

/// A memory request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Refused {
    /// The number of bytes that the failed request asked for.
    pub requested_bytes: u64,
    /// The device's free memory in bytes, as reported by the device; null for a heap.
    #[serde(rename = "free_bytes")]
    pub device_free_bytes: Option<u64>,
    /// The device's total memory in bytes; null if unknown.
    #[serde(rename = "total_bytes")]
    pub device_total_bytes: Option<u64>,
}

/// A line that holds part of a device's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Holder {
    /// The line in the user's code and the function that it called. If no stack was recorded or the time limit was
    /// reached, this is an operator's name instead; otherwise it may be another description of the blocks.
    pub line: String,
    /// The line in the user's code; null if there is none.
    pub frame: Option<Frame>,
    /// The requested bytes in the holder's blocks.
    #[serde(rename = "requested_bytes")]
    pub allocated_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub(crate) error: Estimate,
    /// The number of the holder's blocks.
    pub count: u64,
    /// The holder's share of the held memory, from 0 to 1.
    pub share: f64,
    /// The module in which more than half of the holder's bytes were allocated; null if there is none.
    pub module: Option<String>,
    /// The phase in which more than half of the holder's bytes were allocated; null if there is none.
    pub phase: Option<String>,
    #[serde(skip)]
    pub(crate) kind: Kind,
}

/// The source of a group's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A line in the user's code.
    #[default]
    Line,
    /// A framework's function, because the stack has no frame in the user's code.
    Foreign,
    /// An operator, because no stack was recorded.
    NoStack,
    /// An operator, because the time limit was reached before the stack was symbolized.
    NoTime,
    /// The blocks' age, because they were allocated before recording began.
    Older,
}

/// Memory that was allocated since a given moment and is still held.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Growth {
    /// The name of the moment from which growth is counted: `the last dump`, `the last mark "step"` or
    /// `the halfway point`.
    pub since: String,
    /// The time in seconds from that moment to the one that the report describes.
    pub seconds: f64,
    /// The requested bytes that were allocated since that moment and are still held.
    #[serde(rename = "requested_bytes")]
    pub allocated_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub(crate) error: Estimate,
    /// The number of blocks that were allocated since that moment and are still held.
    pub count: u64,
    /// The line that contributed most to the growth; null if nothing grew.
    pub most_line: Option<String>,
    /// The bytes that this line contributed to the growth; null if nothing grew.
    pub most_bytes: Option<u64>,
    #[serde(skip)]
    pub(crate) most_error: Estimate,
    /// Whether growth is counted from the middle of the whole recording, because the program has no marks.
    #[serde(skip)]
    pub(crate) since_midpoint: bool,
}

/// Another device, with the memory that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OtherDevice {
    /// The device's name.
    pub name: String,
    /// The requested bytes that are held on the device.
    pub requested_bytes: u64,
}

/// A report on what holds a device's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WhoHolds {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// The moment that the report describes.
    pub at: HeldAt,
    /// The failed memory request; null if the report does not describe one.
    pub refused: Option<Refused>,
    /// The requested bytes that the device's blocks hold at this moment.
    #[serde(rename = "requested_bytes")]
    pub allocated_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    error: Estimate,
    /// The number of blocks that are held at this moment.
    pub count: u64,
    /// The margin of error of the block count; null if the count is exact.
    count_error: Estimate,
    /// The lines that hold the most memory, at most three, largest first.
    pub holders: Vec<Holder>,
    /// The number of groups that the held memory is divided into, including those that are not in [`Self::holders`].
    #[serde(skip)]
    pub groups: usize,
    /// Reserved memory outside of blocks; null if there is none or it is unknown.
    pub cached: Option<Cached>,
    /// Memory that is in use but not tracked by memtrack; null if it is unknown.
    pub unseen: Option<Untracked>,
    /// The growth of the held memory; null if it is unknown.
    pub grown: Option<Growth>,
    /// A sentence that says what to do first.
    pub advice: String,
    /// Other devices that hold memory, at most three, largest first.
    pub others: Vec<OtherDevice>,
}

impl WhoHolds {
    /// Returns the report on `device`; `None` if the snapshot has no memory of this device and `query` has no failed
    /// request on it.
    pub fn of(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        query: &HoldsQuery,
    ) -> Option<Self> {
        Self::of_blocks(snapshot, symbols, &DeviceBlocks::of(snapshot, device), query)
    }

    fn of_blocks(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        blocks: &DeviceBlocks,
        query: &HoldsQuery,
    ) -> Option<Self> {
        let DeviceBlocks { device, lifetimes: all, peak } = blocks;
        let device = *device;
        let refused = query.refused.filter(|oom| oom.device == device);
        if all.is_empty() && refused.is_none() {
            return None;
        }
        let place = locate_moment(snapshot, query, blocks);
        let live: Vec<&Lifetime> = all.iter().filter(|one| one.is_live_after(place.row)).collect();
        let marker = find_marker(snapshot, query, all, &place);
        let mut groups = Groups::of(snapshot, device, all, &live, marker.as_ref().map(|marker| marker.ticks));
        groups.symbolize(symbols, query);
        let (mut allocated_bytes, mut error, mut count, mut count_error) = groups.totals();
        let is_estimated = is_estimate(snapshot, device, all);
        let mut most_live = if is_estimated { peak.recorded.high } else { f64::INFINITY };
        error = error.at_most(most_live);
        allocated_bytes = if most_live.is_finite() {
            allocated_bytes.min(most_live.ceil() as u64)
        } else {
            allocated_bytes
        };
        if let Some((bytes, off)) = counted_bytes(snapshot, query, &place, blocks) {
            (allocated_bytes, error) = (bytes, off);
            most_live = if off.is_exact() { bytes as f64 } else { most_live };
        }
        if let Some(held) = counted_at_end_of(snapshot, device, &place, all) {
            (count, count_error) = (held.blocks, held.blocks_error);
        }
        // If the end of the recording is missing, more memory may have been allocated.
        let is_complete = snapshot.meta.complete || !matches!(query.at, HeldAt::Killed | HeldAt::Cut);
        (error, count_error) =
            (error.with_completeness(is_complete), count_error.with_completeness(is_complete));
        groups.cap(most_live, is_complete);
        let holders = groups.largest_holders(MAX_HOLDERS, allocated_bytes);
        let grown = marker.and_then(|marker| groups.growth_since(snapshot, &marker, place.ticks));
        let cached = Cached::of(snapshot, device, &place, allocated_bytes);
        let unseen = Untracked::of(snapshot, device, query.at, &place, &error);
        let mut held = Self {
            device: device_to_answer(snapshot, device),
            at: query.at,
            refused: failed_request(snapshot, device, query, &place, refused),
            allocated_bytes,
            count,
            groups: groups.len(),
            holders,
            cached,
            unseen,
            grown,
            advice: String::new(),
            others: Vec::new(),
            error,
            count_error,
        };
        held.advice = advice::format_advice(&held, snapshot.is_heap(device));
        Some(held)
    }

    /// Returns the report on the most important device: one that ran out of memory, or else the accelerator that holds
    /// the most, or else the heap. The report also lists the bytes that other devices hold.
    pub fn of_all(snapshot: &Snapshot, symbols: &mut Symbolizer, query: &HoldsQuery) -> Option<Self> {
        Self::of_devices(snapshot, symbols, &DeviceBlocks::of_all(snapshot), query)
    }

    /// Like [`Self::of_all`], for the blocks of all devices.
    pub fn of_devices(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        devices: &[DeviceBlocks],
        query: &HoldsQuery,
    ) -> Option<Self> {
        let mut held: Vec<(&DeviceBlocks, u64)> = Vec::new();
        for blocks in devices.iter().filter(|blocks| !blocks.lifetimes.is_empty()) {
            let place = locate_moment(snapshot, query, blocks);
            let live = blocks.lifetimes.iter().filter(|one| one.is_live_after(place.row));
            let recorded = live.fold(0u64, |sum, one| sum.saturating_add(one.bytes));
            let bytes = counted_bytes(snapshot, query, &place, blocks).map_or(recorded, |(bytes, _)| bytes);
            held.push((blocks, bytes));
        }
        // A device that ran out of memory comes first, followed by accelerators, because their memory is scarcer than
        // the heap.
        let ran_out =
            |device| query.at == HeldAt::OutOfMemory && Moment::last_oom(snapshot, device).is_some();
        let scarcity = |device| match snapshot.device_kind(device) {
            DeviceKind::Device => 0,
            DeviceKind::Pinned => 1,
            DeviceKind::Mapped | DeviceKind::Host => 2,
        };
        held.sort_by_key(|&(blocks, bytes)| {
            (!ran_out(blocks.device), scarcity(blocks.device), std::cmp::Reverse(bytes))
        });
        let (first, rest) = held.split_first()?;
        let mut all = Self::of_blocks(snapshot, symbols, first.0, query)?;
        let mut rest: Vec<_> = rest.iter().filter(|(_, bytes)| *bytes > 0).collect();
        rest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let other = |&(of, requested_bytes): &(&DeviceBlocks, u64)| OtherDevice {
            name: snapshot.device_name(of.device),
            requested_bytes,
        };
        all.others = rest.into_iter().take(3).map(other).collect();
        Some(all)
    }
}

/// Formats the report for a program's log: for the device on which `refused` failed or, if it is `None`, for all
/// devices. The text is either empty or consists of complete lines. `since` is the moment from which growth is
/// counted, as its ticks and its name.
pub fn log_text(
    snapshot: &Snapshot,
    refused: Option<OutOfMemory>,
    since: Option<(u64, &str)>,
    symbol_time_limit: Duration,
) -> String {
    let marker = since.map(|(ticks, name)| Marker::new(ticks, name));
    let query = HoldsQuery::default().refused(refused).since(marker).symbol_time_limit(symbol_time_limit);
    let symbols = &mut Symbolizer::of(snapshot);
    let held = match refused {
        Some(oom) => WhoHolds::of(snapshot, symbols, oom.device, &query),
        None => WhoHolds::of_all(snapshot, symbols, &query),
    };
    held.map_or(String::new(), |held| held.log_text())
}

/// Returns whether a device ran out of memory, or whether the heap did and the program allocated nothing afterwards.
fn ran_out(snapshot: &Snapshot) -> bool {
    let actions = &snapshot.events.action;
    let of_device = |row: &usize| !snapshot.is_heap(snapshot.events.device[*row]);
    let refusals =
        || actions.iter().enumerate().filter(|&(_, &action)| action == Action::Oom).map(|(row, _)| row);
    if refusals().any(|row| of_device(&row)) {
        return true;
    }
    let continues = |last: usize| {
        let later = last + 1..actions.len();
        later.into_iter().any(|row| actions[row] == Action::Alloc && !of_device(&row))
    };
    refusals().next_back().is_some_and(|last| !continues(last))
}

fn device_to_answer(snapshot: &Snapshot, device: DeviceId) -> DeviceAnswer {
    DeviceAnswer::new(snapshot.ordinal(device), &snapshot.device_name(device), snapshot.device_kind(device))
}

/// Returns the recorder's count of the memory that is held at the end, for a recording whose small blocks were sampled.
fn counted_at_end_of(
    snapshot: &Snapshot,
    device: DeviceId,
    place: &HeldMoment,
    all: &[Lifetime],
) -> Option<HeldAtEnd> {
    place.is_end.then(|| counted_at_end(snapshot, device, all)).flatten()
}

/// Returns the recorder's count of the held bytes with its error, if there is a count for the described moment.
fn counted_bytes(
    snapshot: &Snapshot,
    query: &HoldsQuery,
    place: &HeldMoment,
    blocks: &DeviceBlocks,
) -> Option<(u64, Estimate)> {
    let DeviceBlocks { device, lifetimes, peak } = blocks;
    if query.at == HeldAt::Peak {
        return is_estimate(snapshot, *device, lifetimes).then_some((peak.bytes, peak.error));
    }
    counted_at_end_of(snapshot, *device, place, lifetimes).map(|held| (held.bytes, held.bytes_error))
}

/// Locates the described moment in the trace.
fn locate_moment(snapshot: &Snapshot, query: &HoldsQuery, blocks: &DeviceBlocks) -> HeldMoment {
    let device = blocks.device;
    let row = match query.at {
        HeldAt::Now | HeldAt::Killed | HeldAt::Cut => Some(usize::MAX),
        HeldAt::OutOfMemory => match Moment::last_oom(snapshot, device) {
            Some(moment) => moment.row(),
            None => Some(usize::MAX),
        },
        HeldAt::Peak => blocks.peak.row,
    };
    let changes = |row: usize| snapshot.events.action[row] != Action::Oom;
    let later = |of: usize| snapshot.events.rows_of(device).any(|row| row > of && changes(row));
    let is_end = match row {
        Some(usize::MAX) => true,
        Some(row) => !later(row),
        None => snapshot.events.rows_of(device).next().is_none(),
    };
    let newest = snapshot.events.ticks.iter().copied().max().unwrap_or(0);
    let ticks = match row {
        Some(row) if row < snapshot.events.len() => snapshot.events.ticks[row],
        Some(_) if snapshot.pytorch.is_none() && snapshot.meta.complete => snapshot.clock.last.0.max(newest),
        Some(_) => newest,
        None => snapshot.clock.first.0,
    };
    HeldMoment { row, is_end, ticks, has_reserved_bytes: has_reserved_bytes(snapshot, device) }
}

/// Returns the moment from which growth is counted.
fn find_marker(
    snapshot: &Snapshot,
    query: &HoldsQuery,
    all: &[Lifetime],
    place: &HeldMoment,
) -> Option<Marker> {
    // The program's own marks take precedence.
    let marked = snapshot.marks.rows.iter().rev().find(|mark| mark.ticks < place.ticks);
    if let Some(mark) = marked {
        return Some(Marker::new(mark.ticks, format!("the last mark \"{}\"", snapshot.marks.name(mark))));
    }
    if let Some(marker) = &query.marker {
        return (marker.ticks <= place.ticks).then(|| marker.clone());
    }
    // PyTorch's files may lack times or even the trace.
    if !snapshot.has_times() {
        return None;
    }
    let first = match snapshot.pytorch {
        Some(_) => snapshot.events.ticks.iter().copied().min()?,
        None => snapshot.clock.first.0,
    };
    let newest = all.iter().filter_map(|one| groups::ticks_of(snapshot, one)).max()?;
    let has_times = newest > first && place.ticks > first;
    has_times.then(|| Marker {
        is_midpoint: place.is_end,
        ..Marker::new(first + (place.ticks - first) / 2, "the halfway point")
    })
}

fn failed_request(
    snapshot: &Snapshot,
    device: DeviceId,
    query: &HoldsQuery,
    place: &HeldMoment,
    now: Option<OutOfMemory>,
) -> Option<Refused> {
    let known = |bytes: u64| (bytes > 0).then_some(bytes);
    let is_heap = snapshot.is_heap(device);
    if let Some(oom) = now {
        return Some(Refused {
            requested_bytes: oom.requested_bytes,
            device_free_bytes: (!is_heap).then_some(oom.device_free_bytes),
            device_total_bytes: known(oom.device_total_bytes),
        });
    }
    let row = place.row.filter(|&row| query.at == HeldAt::OutOfMemory && row < snapshot.events.len())?;
    Some(Refused {
        requested_bytes: snapshot.events.size_bytes[row],
        device_free_bytes: snapshot.oom_free_bytes(row),
        device_total_bytes: None,
    })
}
