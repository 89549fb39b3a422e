//! Leaks as JSON. Bytes are requested bytes, as integers, each with its error; absent values are null.

use super::{Age, Amount, CutBy, DeviceLeaks, FreedLate, Generation, Generations, Leak, LeakReport, Share};
use crate::analysis::estimate::Estimate;
use crate::analysis::top::{RowText, StackLine};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use memtrack_model::units::printable;
use serde::Serialize;

/// The leaks, as `memtrack leaks --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeaksAnswer {
    /// The key of the groups, as with `--by`.
    pub by: &'static str,
    /// Whether any group leaks.
    pub leaking: bool,
    /// Whether the recording is complete. Otherwise, the numbers are lower bounds on the remaining memory of each
    /// group.
    pub complete: bool,
    /// The reason why leaks cannot be determined on any device; null where they can.
    pub blind: Option<String>,
    /// The summary as sentences, a line for each device.
    pub answer: Vec<String>,
    /// The way in which the periods were cut: `time`, `events` (the file does not contain all times), `intervals` (the
    /// program's own) or `snapshots`.
    pub cut_by: &'static str,
    /// The name of the program's own intervals that make up the periods; null where the periods were cut otherwise.
    pub interval_name: Option<String>,
    /// The number of those intervals.
    pub intervals: Option<usize>,
    /// The number of periods.
    pub periods: usize,
    /// The number of events in each period; null where the periods were cut otherwise.
    pub period_events: Option<usize>,
    /// The average length of the periods, in seconds; null where the files have no times.
    pub period_seconds: Option<f64>,
    /// The devices.
    pub devices: Vec<DeviceLeaksAnswer>,
    /// Patterns of `--suppress` that match no stack.
    pub unused_suppressions: Vec<String>,
    /// Caveats about the comparison of the files.
    pub notes: Vec<String>,
}

/// The leaks on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceLeaksAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The reason why the device's leaks cannot be determined; null where they can.
    pub blind: Option<String>,
    /// The leaks, those with the most bytes first.
    pub leaks: Vec<LeakAnswer>,
    /// The number of leaks, including those beyond the limit.
    pub leaks_in_all: usize,
    /// The memory of all leaks that was never freed.
    pub leaked: AmountAnswer,
    /// Other memory that was allocated in the recording and not freed; for a series of snapshots, all other memory of the
    /// newest snapshot.
    pub alive: AmountAnswer,
    /// The number of groups with memory in `alive`.
    pub alive_groups: usize,
    /// Memory that is live and older than the first event; it was not judged.
    pub older: AmountAnswer,
    /// Memory that was never freed and that a suppression excludes.
    pub suppressed: AmountAnswer,
    /// Groups that left less than this in small blocks may have no sample (with 5 % probability); 0 where every block was
    /// recorded.
    pub detection_limit_bytes: u64,
    /// Older events that the recorder dropped.
    pub dropped_events: u64,
    /// Groups that grew like leaks and were freed in the last moments, as at a program's end, those with the most bytes
    /// first.
    pub freed_late: Vec<FreedLateAnswer>,
    /// The memory that each of the program's own intervals left behind, with `--per`.
    pub generations: Option<GenerationsAnswer>,
}

/// Bytes and blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AmountAnswer {
    /// Bytes requested.
    pub requested_bytes: u64,
    /// The error of the requested bytes.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks.
    pub count: u64,
    /// The error of the number of blocks.
    pub count_error: Option<ErrorAnswer>,
}

/// A group that grew like a leak and was freed in the last moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FreedLateAnswer {
    /// The name of the group.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The memory of the group that was freed in the last moments.
    pub freed: AmountAnswer,
    /// The number of periods before the last in which the group grew.
    pub grew_periods: usize,
    /// The number of judged periods.
    pub periods: usize,
    /// The start of the last moments, in seconds before the end; null if the file does not contain times.
    pub last_seconds: Option<f64>,
    /// The group in a few words: for a stack, its own line.
    pub place: String,
}

/// A group that leaks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeakAnswer {
    /// The name of the group: a line, an operator, or another key of the groups.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The memory of the group that was never freed, or freed only after the last of the program's steps.
    pub never_freed: AmountAnswer,
    /// The part of `never_freed` that was freed after the last step, as at a program's end.
    pub freed_later: AmountAnswer,
    /// The number of periods in which the group grew.
    pub grew_periods: usize,
    /// The number of periods, from the first in which any memory of the group stayed.
    pub periods: usize,
    /// The group's average growth per period, in bytes.
    pub each_period_bytes: u64,
    /// The error of that growth.
    pub each_period_bytes_error: Option<ErrorAnswer>,
    /// The bytes of the group that lived through each of these periods; for a series of snapshots, the bytes in each
    /// snapshot, beginning with the one before the first of these periods.
    pub held_bytes: Vec<u64>,
    /// The error of each number in `held_bytes`.
    pub held_bytes_error: Vec<Option<ErrorAnswer>>,
    /// The ages of the group's blocks; null where too few were freed to know the usual lifetime.
    pub age: Option<AgeAnswer>,
    /// The first stack, innermost frame first; null for groups without stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The number of different stacks in the group; null for groups without stacks.
    pub stacks: Option<usize>,
    /// The innermost line in the user's code.
    pub mine: Option<FrameAnswer>,
    /// The function that this line called.
    pub calls: Option<FrameAnswer>,
    /// The functions that the line called, the first ten; empty for groups other than lines.
    pub called: Vec<CalledAnswer>,
}

/// The ages of a group's blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AgeAnswer {
    /// Blocks that were freed.
    pub freed_count: u64,
    /// The time within which 99 % of those blocks were freed.
    pub usual_seconds: f64,
    /// Blocks that were never freed and are more than ten times as old as `usual_seconds`.
    pub far_older_count: u64,
    /// The bytes of those blocks.
    pub far_older_bytes: u64,
}

/// A part of a leak: the blocks below a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CalledAnswer {
    /// The function.
    pub name: Option<String>,
    /// Bytes requested; null where they include samples.
    pub requested_bytes: Option<u64>,
    /// The number of blocks; null where they include samples.
    pub count: Option<u64>,
}

/// The memory that the program's own intervals left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GenerationsAnswer {
    /// The name of the intervals.
    pub name: String,
    /// The number of marks between the intervals.
    pub marks: usize,
    /// The origin that the seconds are counted from: `start` or `first_event`.
    pub seconds_since: &'static str,
    /// The number of intervals between two marks that left any memory.
    pub leaving: usize,
    /// The median of the bytes that an interval between two marks left.
    pub median_left_bytes: u64,
    /// The intervals that left the most memory, in chronological order.
    pub rows: Vec<GenerationAnswer>,
    /// The number of intervals, including the times before the first mark and after the last.
    pub rows_in_all: usize,
}

/// One of the program's own intervals, with the memory that it left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GenerationAnswer {
    /// The number of the interval; 0 is the time before the first mark.
    pub number: usize,
    /// The start of the interval; null for the time before the first mark, and if the file does not contain times.
    pub from_seconds: Option<f64>,
    /// The end of the interval; null for the time after the last mark, and if the file does not contain times.
    pub to_seconds: Option<f64>,
    /// The memory that was allocated in the interval.
    pub allocated: AmountAnswer,
    /// The part of that memory that was live when the last interval ended; for the time after the last interval, the part
    /// that was never freed.
    pub left: AmountAnswer,
    /// The groups that left the most memory, at most three.
    pub groups: Vec<LeftAnswer>,
    /// The number of groups that left any memory.
    pub groups_in_all: usize,
}

/// The memory that one group left behind in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeftAnswer {
    /// The group.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The memory that the group left behind.
    pub left: AmountAnswer,
}

impl LeakReport {
    /// Returns the report as `memtrack leaks --json` prints it.
    pub fn answer_json(&self) -> LeaksAnswer {
        let (cut_by, interval_name, intervals) = match &self.cut {
            CutBy::Time => ("time", None, None),
            CutBy::Events { .. } => ("events", None, None),
            CutBy::Intervals { name, count } => ("intervals", Some(name.clone()), Some(*count)),
            CutBy::Snapshots => ("snapshots", None, None),
        };
        LeaksAnswer {
            by: self.by.name(),
            leaking: self.is_leaking(),
            complete: self.complete,
            blind: self.blind(),
            answer: self.answer(),
            cut_by,
            interval_name,
            intervals,
            periods: self.periods,
            period_events: match self.cut {
                CutBy::Events { each } => Some(each),
                _ => None,
            },
            period_seconds: self.period_seconds,
            devices: self.devices.iter().map(device).collect(),
            unused_suppressions: self.unused_suppressions.clone(),
            notes: self.notes.clone(),
        }
    }
}

fn device(device: &DeviceLeaks) -> DeviceLeaksAnswer {
    DeviceLeaksAnswer {
        device: DeviceAnswer::new(device.device, &device.device_name, device.is_host, device.is_pinned),
        blind: device.blind.clone(),
        leaks: device.leaks.iter().map(leak).collect(),
        leaks_in_all: device.leaks_in_all,
        leaked: amount(&device.leaked),
        alive: amount(&device.alive),
        alive_groups: device.alive_groups,
        older: amount(&device.older),
        suppressed: amount(&device.suppressed),
        detection_limit_bytes: device.detection_limit_bytes,
        dropped_events: device.dropped,
        freed_late: device.freed_late.iter().map(freed_late).collect(),
        generations: device.generations.as_ref().map(generations),
    }
}

fn freed_late(late: &FreedLate) -> FreedLateAnswer {
    FreedLateAnswer {
        name: NameAnswer::from_text(&late.name),
        freed: amount(&late.freed),
        grew_periods: late.grew,
        periods: late.periods,
        last_seconds: late.last_seconds,
        place: printable(&late.place),
    }
}

fn amount(amount: &Amount) -> AmountAnswer {
    AmountAnswer {
        requested_bytes: amount.bytes,
        requested_bytes_error: amount.bytes_error.answer(),
        count: amount.blocks,
        count_error: amount.blocks_error.answer(),
    }
}

fn leak(leak: &Leak) -> LeakAnswer {
    let row = &leak.row;
    let frame = |line: &StackLine| FrameAnswer::from(&line.frame).at(line.address);
    let called = |called: &RowText| {
        let known = |number: u64| (!row.estimated).then_some(number);
        let (requested_bytes, count) = (known(called.bytes), known(called.blocks));
        CalledAnswer { name: NameAnswer::from_text(&called.text).name, requested_bytes, count }
    };
    LeakAnswer {
        name: NameAnswer::from_text(&row.name),
        never_freed: AmountAnswer {
            requested_bytes: row.allocated_bytes,
            requested_bytes_error: row.errors.allocated_bytes.answer(),
            count: row.count,
            count_error: row.errors.count.answer(),
        },
        freed_later: amount(&leak.freed_later),
        grew_periods: leak.grew,
        periods: leak.periods,
        each_period_bytes: leak.each_bytes.value.max(0.0).round() as u64,
        each_period_bytes_error: leak.each_bytes.answer(),
        held_bytes: leak.held_bytes.clone(),
        held_bytes_error: leak.held_errors.iter().map(Estimate::answer).collect(),
        age: leak.age.as_ref().map(age),
        stack: (!row.stack.is_empty()).then(|| row.stack.iter().map(frame).collect()),
        stacks: (row.stacks > 0).then_some(row.stacks),
        mine: row.owned.mine.as_ref().map(FrameAnswer::from),
        calls: row.owned.called.as_ref().map(FrameAnswer::from),
        called: row.called.iter().map(called).collect(),
    }
}

fn age(age: &Age) -> AgeAnswer {
    AgeAnswer {
        freed_count: age.freed,
        usual_seconds: age.usual_seconds,
        far_older_count: age.far_older,
        far_older_bytes: age.far_older_bytes,
    }
}

fn generations(generations: &Generations) -> GenerationsAnswer {
    let left =
        |share: &Share| LeftAnswer { name: NameAnswer::from_text(&share.name), left: amount(&share.left) };
    let row = |row: &Generation| GenerationAnswer {
        number: row.number,
        from_seconds: row.from_seconds,
        to_seconds: row.to_seconds,
        allocated: amount(&row.allocated),
        left: amount(&row.left),
        groups: row.shares.iter().map(left).collect(),
        groups_in_all: row.shares_in_all,
    };
    GenerationsAnswer {
        name: generations.name.clone(),
        marks: generations.marks,
        seconds_since: generations.since.name(),
        leaving: generations.leaving,
        median_left_bytes: generations.median_left_bytes,
        rows: generations.rows.iter().map(row).collect(),
        rows_in_all: generations.rows_in_all,
    }
}
