//! Leaks as JSON. Bytes are requested bytes, given as integers, each with its error; absent values are null.

use super::{Age, Amount, CutBy, DeviceLeaks, FreedLate, Generation, Generations, Leak, LeakReport, Share};
use crate::top::{RowText, StackLine};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use memtrack_model::units::printable;
use serde::Serialize;

/// The leaks, as `memtrack leaks --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeaksAnswer {
    /// The key by which allocations are grouped, as given to `--by`.
    pub by: &'static str,
    /// Whether any group leaks.
    pub leaking: bool,
    /// Whether the recording is complete. If not, the numbers are lower bounds on each group's remaining memory.
    pub complete: bool,
    /// The reason why leaks cannot be determined on any device; null if they can.
    pub blind: Option<String>,
    /// The summary as sentences, with a line for each device.
    pub answer: Vec<String>,
    /// How the periods were determined: by `time`, by `events` (if the file does not record all times), by the
    /// program's own `intervals`, or by `snapshots`.
    pub cut_by: &'static str,
    /// The name of the program's own intervals that serve as periods; null if there are none.
    pub interval_name: Option<String>,
    /// The number of the program's own intervals that serve as periods; null if there are none.
    pub intervals: Option<usize>,
    /// The number of periods into which the recording or the series of snapshots is divided.
    pub periods: usize,
    /// The number of events in each period; null unless `cut_by` is `events`.
    pub period_events: Option<usize>,
    /// The average length of a period in seconds; null if the files have no times.
    pub period_seconds: Option<f64>,
    /// The leaks on each device.
    pub devices: Vec<DeviceLeaksAnswer>,
    /// The patterns given to `--suppress` that match no stack.
    pub unused_suppressions: Vec<String>,
    /// Caveats about how the files compare.
    pub notes: Vec<String>,
}

/// The leaks on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceLeaksAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The reason why the device's leaks cannot be determined; null if they can.
    pub blind: Option<String>,
    /// The leaks, largest first.
    pub leaks: Vec<LeakAnswer>,
    /// The total number of leaks, including those beyond the limit.
    pub leaks_in_all: usize,
    /// The never-freed memory of all leaks, including those beyond the limit.
    pub leaked: AmountAnswer,
    /// Memory that was allocated during the recording and not freed but does not belong to a leak. For a series of
    /// snapshots, this is all memory in the newest snapshot that does not belong to a leak.
    pub alive: AmountAnswer,
    /// The number of groups that have memory in `alive`.
    pub alive_groups: usize,
    /// Live memory that is older than the first event, and so was not judged.
    pub older: AmountAnswer,
    /// Memory that was never freed but is excluded by a suppression.
    pub suppressed: AmountAnswer,
    /// The detection limit for leaks in small blocks, in bytes. Because small blocks are sampled, a group that leaves
    /// behind less than this has a chance of at least 5 % of having no sample at all; 0 if every block was recorded.
    pub detection_limit_bytes: u64,
    /// The number of the device's older events that were dropped because they did not fit in the recorder's ring.
    pub dropped_events: u64,
    /// Groups that grew like leaks but were freed in the last moments, e.g. when the program exited, largest first.
    pub freed_late: Vec<FreedLateAnswer>,
    /// The memory that each of the program's own intervals left behind; null unless `--per` was given.
    pub generations: Option<GenerationsAnswer>,
}

/// An amount of memory, in bytes and in blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AmountAnswer {
    /// The amount in requested bytes.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The amount as a number of blocks.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Option<ErrorAnswer>,
}

/// A group that grew like a leak but was freed in the last moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FreedLateAnswer {
    /// The group's name.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The group's memory that was freed in the last moments.
    pub freed: AmountAnswer,
    /// The number of periods in which the group grew before its memory was freed.
    pub grew_periods: usize,
    /// The number of periods in which the group's growth was judged.
    pub periods: usize,
    /// The time in seconds from the first free in the last moments to the end; null if the file does not record times.
    pub last_seconds: Option<f64>,
    /// A short description of the group; for a stack, its line in the user's code.
    pub place: String,
}

/// A group that leaks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeakAnswer {
    /// The group's name: a line, an operator, or whatever the groups are keyed by.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The group's memory that was never freed, or was freed only after the last of the program's steps.
    pub never_freed: AmountAnswer,
    /// The part of `never_freed` that was freed after the last step, e.g. when the program exited.
    pub freed_later: AmountAnswer,
    /// The number of periods in which the group grew, out of those in `periods`.
    pub grew_periods: usize,
    /// The number of periods in which the group's growth was judged, starting with the first one in which any of its
    /// memory stayed.
    pub periods: usize,
    /// The group's average growth per period, in bytes.
    pub each_period_bytes: u64,
    /// The margin of error of the average growth per period; null if it is exact.
    pub each_period_bytes_error: Option<ErrorAnswer>,
    /// The group's bytes that lived through each of the judged periods. For a series of snapshots, these are the bytes
    /// in each snapshot, starting with the one before the first judged period.
    pub held_bytes: Vec<u64>,
    /// The margin of error of each number in `held_bytes`; null for a number that is exact.
    pub held_bytes_error: Vec<Option<ErrorAnswer>>,
    /// The ages of the group's blocks; null if too few of its blocks were freed to know their usual lifetime.
    pub age: Option<AgeAnswer>,
    /// The group's first stack, innermost frame first; null for groups without stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The number of distinct stacks in the group; null for groups without stacks.
    pub stacks: Option<usize>,
    /// The group's innermost line in the user's code; null if there is none.
    pub mine: Option<FrameAnswer>,
    /// The function that the line in `mine` called; null if there is none.
    pub calls: Option<FrameAnswer>,
    /// The functions that the group's line called, up to ten; empty for groups other than lines.
    pub called: Vec<CalledAnswer>,
}

/// The ages of the blocks in a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AgeAnswer {
    /// The number of the group's blocks that were freed.
    pub freed_count: u64,
    /// The usual lifetime of a block in seconds: 99 % of the freed blocks were freed within this time.
    pub usual_seconds: f64,
    /// The number of the group's blocks that were never freed and are more than ten times as old as `usual_seconds`.
    pub far_older_count: u64,
    /// The total bytes of the blocks that `far_older_count` counts.
    pub far_older_bytes: u64,
}

/// A part of a leak: the blocks allocated below one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CalledAnswer {
    /// The name of the function; null if there is none.
    pub name: Option<String>,
    /// The requested bytes in the blocks that were allocated below the function; null if the leak's numbers are
    /// estimates.
    pub requested_bytes: Option<u64>,
    /// The number of blocks that were allocated below the function; null if the leak's numbers are estimates.
    pub count: Option<u64>,
}

/// The memory that the program's own intervals left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GenerationsAnswer {
    /// The name of the intervals.
    pub name: String,
    /// The number of the program's marks that separate the intervals.
    pub marks: usize,
    /// The origin from which the seconds are counted: `start` or `first_event`.
    pub seconds_since: &'static str,
    /// The number of intervals between two marks that left any memory behind.
    pub leaving: usize,
    /// The median over all intervals between two marks of the bytes that an interval left behind.
    pub median_left_bytes: u64,
    /// The intervals that left the most memory behind, in chronological order.
    pub rows: Vec<GenerationAnswer>,
    /// The total number of intervals, including the times before the first mark and after the last.
    pub rows_in_all: usize,
}

/// One of the program's own intervals, and the memory that it left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GenerationAnswer {
    /// The number of the interval; 0 is the time before the first mark.
    pub number: usize,
    /// The start of the interval in seconds; null for the time before the first mark or if the file does not record
    /// times.
    pub from_seconds: Option<f64>,
    /// The end of the interval in seconds; null for the time after the last mark or if the file does not record times.
    pub to_seconds: Option<f64>,
    /// The memory that was allocated in the interval.
    pub allocated: AmountAnswer,
    /// The part of the memory in `allocated` that was live when the last interval ended. For the time after the last
    /// interval, this is the part that was never freed.
    pub left: AmountAnswer,
    /// The groups that left the most memory behind in the interval, at most three.
    pub groups: Vec<LeftAnswer>,
    /// The total number of groups that left any memory behind in the interval.
    pub groups_in_all: usize,
}

/// The memory that one group left behind in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeftAnswer {
    /// The group's name.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The memory that the group left behind in the interval.
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
            devices: self.devices.iter().map(device_to_answer).collect(),
            unused_suppressions: self.unused_suppressions.clone(),
            notes: self.notes.clone(),
        }
    }
}

fn device_to_answer(device: &DeviceLeaks) -> DeviceLeaksAnswer {
    DeviceLeaksAnswer {
        device: DeviceAnswer::new(device.device, &device.device_name, device.kind),
        blind: device.blind.clone(),
        leaks: device.leaks.iter().map(leak_to_answer).collect(),
        leaks_in_all: device.leaks_in_all,
        leaked: amount_to_answer(&device.leaked),
        alive: amount_to_answer(&device.alive),
        alive_groups: device.alive_groups,
        older: amount_to_answer(&device.older),
        suppressed: amount_to_answer(&device.suppressed),
        detection_limit_bytes: device.detection_limit_bytes,
        dropped_events: device.dropped,
        freed_late: device.freed_late.iter().map(freed_late_to_answer).collect(),
        generations: device.generations.as_ref().map(generations_to_answer),
    }
}

fn freed_late_to_answer(late: &FreedLate) -> FreedLateAnswer {
    FreedLateAnswer {
        name: NameAnswer::from_text(&late.name),
        freed: amount_to_answer(&late.freed),
        grew_periods: late.grew,
        periods: late.periods,
        last_seconds: late.last_seconds,
        place: printable(&late.place),
    }
}

fn amount_to_answer(amount: &Amount) -> AmountAnswer {
    AmountAnswer {
        requested_bytes: amount.bytes,
        requested_bytes_error: amount.bytes_error.answer(),
        count: amount.blocks,
        count_error: amount.blocks_error.answer(),
    }
}

fn leak_to_answer(leak: &Leak) -> LeakAnswer {
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
        freed_later: amount_to_answer(&leak.freed_later),
        grew_periods: leak.grew,
        periods: leak.periods,
        each_period_bytes: leak.each_bytes.value.max(0.0).round() as u64,
        each_period_bytes_error: leak.each_bytes.answer(),
        held_bytes: leak.held_bytes.clone(),
        held_bytes_error: leak.held_errors.iter().map(Estimate::answer).collect(),
        age: leak.age.as_ref().map(age_to_answer),
        stack: (!row.stack.is_empty()).then(|| row.stack.iter().map(frame).collect()),
        stacks: (row.stacks > 0).then_some(row.stacks),
        mine: row.owned.mine.as_ref().map(FrameAnswer::from),
        calls: row.owned.called.as_ref().map(FrameAnswer::from),
        called: row.called.iter().map(called).collect(),
    }
}

fn age_to_answer(age: &Age) -> AgeAnswer {
    AgeAnswer {
        freed_count: age.freed,
        usual_seconds: age.usual_seconds,
        far_older_count: age.far_older,
        far_older_bytes: age.far_older_bytes,
    }
}

fn generations_to_answer(generations: &Generations) -> GenerationsAnswer {
    let left = |share: &Share| LeftAnswer {
        name: NameAnswer::from_text(&share.name),
        left: amount_to_answer(&share.left),
    };
    let row = |row: &Generation| GenerationAnswer {
        number: row.number,
        from_seconds: row.from_seconds,
        to_seconds: row.to_seconds,
        allocated: amount_to_answer(&row.allocated),
        left: amount_to_answer(&row.left),
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
