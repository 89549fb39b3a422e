//! Leaks as JSON. Bytes are requested bytes, given as integers, each with its error; absent values are null.

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
    /// The key by which allocations are grouped, as for `--by`.
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
    /// The number of those intervals.
    pub intervals: Option<usize>,
    /// The number of periods.
    pub periods: usize,
    /// The number of events in each period; null unless periods are numbers of events.
    pub period_events: Option<usize>,
    /// The average length of a period in seconds; null if the files have no times.
    pub period_seconds: Option<f64>,
    /// The devices.
    pub devices: Vec<DeviceLeaksAnswer>,
    /// Patterns in `--suppress` that match no stack.
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
    /// The never-freed memory of all leaks.
    pub leaked: AmountAnswer,
    /// Other memory that was allocated during the recording and not freed; for a series of snapshots, all other memory
    /// in the newest snapshot.
    pub alive: AmountAnswer,
    /// The number of groups that have memory in `alive`.
    pub alive_groups: usize,
    /// Live memory that is older than the first event, and so was not judged.
    pub older: AmountAnswer,
    /// Memory that was never freed but is excluded by a suppression.
    pub suppressed: AmountAnswer,
    /// Groups that left less than this behind in small blocks may have no sample (with 5 % probability); 0 if every
    /// block was recorded.
    pub detection_limit_bytes: u64,
    /// The number of older events that the recorder dropped.
    pub dropped_events: u64,
    /// Groups that grew like leaks but were freed in the last moments, e.g. when the program exited, largest first.
    pub freed_late: Vec<FreedLateAnswer>,
    /// The memory that each of the program's own intervals left behind, if `--per` was given.
    pub generations: Option<GenerationsAnswer>,
}

/// Bytes and blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AmountAnswer {
    /// Requested bytes.
    pub requested_bytes: u64,
    /// The error of the requested bytes.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks.
    pub count: u64,
    /// The error of the number of blocks.
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
    /// The number of periods before the last one in which the group grew.
    pub grew_periods: usize,
    /// The number of periods that were judged.
    pub periods: usize,
    /// When the last moments started, in seconds before the end; null if the file does not record times.
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
    /// The number of periods in which the group grew.
    pub grew_periods: usize,
    /// The number of periods, starting with the first one in which any memory of the group stayed.
    pub periods: usize,
    /// The group's average growth per period, in bytes.
    pub each_period_bytes: u64,
    /// The error of that growth.
    pub each_period_bytes_error: Option<ErrorAnswer>,
    /// The group's bytes that lived through each of these periods. For a series of snapshots, these are the bytes in
    /// each snapshot, starting with the one before the first of these periods.
    pub held_bytes: Vec<u64>,
    /// The error of each number in `held_bytes`.
    pub held_bytes_error: Vec<Option<ErrorAnswer>>,
    /// The ages of the group's blocks; null if too few were freed to know the usual lifetime.
    pub age: Option<AgeAnswer>,
    /// The first stack, innermost frame first; null for groups without stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The number of distinct stacks in the group; null for groups without stacks.
    pub stacks: Option<usize>,
    /// The innermost line in the user's code.
    pub mine: Option<FrameAnswer>,
    /// The function that this line called.
    pub calls: Option<FrameAnswer>,
    /// The functions that this line called, up to ten; empty for groups other than lines.
    pub called: Vec<CalledAnswer>,
}

/// The ages of the blocks in a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AgeAnswer {
    /// The number of blocks that were freed.
    pub freed_count: u64,
    /// The time within which 99 % of those blocks were freed.
    pub usual_seconds: f64,
    /// The number of blocks that were never freed and are more than ten times as old as `usual_seconds`.
    pub far_older_count: u64,
    /// The total bytes of those blocks.
    pub far_older_bytes: u64,
}

/// A part of a leak: the blocks allocated below one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CalledAnswer {
    /// The function.
    pub name: Option<String>,
    /// Requested bytes; null if they include samples.
    pub requested_bytes: Option<u64>,
    /// The number of blocks; null if it includes samples.
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
    /// The origin from which the seconds are counted: `start` or `first_event`.
    pub seconds_since: &'static str,
    /// The number of intervals between two marks that left any memory behind.
    pub leaving: usize,
    /// The median number of bytes that an interval between two marks left behind.
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
    /// The start of the interval; null for the time before the first mark or if the file does not record times.
    pub from_seconds: Option<f64>,
    /// The end of the interval; null for the time after the last mark or if the file does not record times.
    pub to_seconds: Option<f64>,
    /// The memory that was allocated in the interval.
    pub allocated: AmountAnswer,
    /// The part of that memory that was live when the last interval ended or, for the time after the last interval, was
    /// never freed.
    pub left: AmountAnswer,
    /// The groups that left the most memory behind, at most three.
    pub groups: Vec<LeftAnswer>,
    /// The number of groups that left any memory behind.
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
            devices: self.devices.iter().map(device_to_answer).collect(),
            unused_suppressions: self.unused_suppressions.clone(),
            notes: self.notes.clone(),
        }
    }
}

fn device_to_answer(device: &DeviceLeaks) -> DeviceLeaksAnswer {
    DeviceLeaksAnswer {
        device: DeviceAnswer::new(device.device, &device.device_name, device.is_host, device.is_pinned),
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
