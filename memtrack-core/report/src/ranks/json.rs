//! Ranks as JSON. Bytes are integers, with the errors of estimates next to them; absent or unknown values are null.

use super::Ranks;
use super::digest::{DeviceDigest, MomentDigest, RankDigest};
use super::memory::{Measure, Outlier, RanksMemory};
use super::rule::Distribution;
use super::skew::{Skew, StepSkew};
use super::why::Difference;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, NameAnswer};
use serde::Serialize;

/// The memory of a job's ranks, as `memtrack ranks --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RanksAnswer {
    /// The key by which allocations are grouped, as given to `--by`.
    pub by: &'static str,
    /// The summary as sentences.
    pub answer: Vec<String>,
    /// Reasons to doubt that the files are ranks of one job, as sentences.
    pub doubts: Vec<String>,
    /// The ranks in order of their numbers, followed by those without a number.
    pub ranks: Vec<RankAnswer>,
    /// A comparison of the ranks for each kind of memory: first devices, then pinned memory, then the heap.
    pub memories: Vec<RanksMemoryAnswer>,
    /// The files that could not be read.
    pub unread: Vec<UnreadAnswer>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnreadAnswer {
    /// The path of the file.
    pub path: String,
    /// The reason why the file could not be read.
    pub why: String,
}

/// A rank of the job, with its file and its memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankAnswer {
    /// The number of the rank; null if neither the file nor its name states it.
    pub rank: Option<u64>,
    /// The path of the rank's file.
    pub path: String,
    /// The job that the rank belongs to; null if neither the file nor a folder states it.
    pub job: Option<String>,
    /// Whether the file is complete; false for a recording that was cut off.
    pub complete: bool,
    /// Whether the file is a snapshot from PyTorch.
    pub is_pytorch: bool,
    /// The number of events in the file.
    pub events: u64,
    /// The origin from which the rank's seconds are counted, in nanoseconds since the Unix epoch; null if the file has
    /// no times.
    pub begin_ns: Option<u64>,
    /// The origin from which the rank's seconds are counted, by name: `start` of the recording, `first_event`, or
    /// `first_timed_event` if only some events have times.
    pub seconds_since: &'static str,
    /// The time of the last event in seconds; null if the file does not record the times of all events.
    pub end_seconds: Option<f64>,
    /// The rank's memory on each device.
    pub devices: Vec<RankMemoryAnswer>,
}

/// A rank's memory on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankMemoryAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The rank's memory at the moment when the most bytes were live.
    pub peak: MomentAnswer,
    /// The rank's memory at the moment when the most bytes were reserved; null if the file has no reserved bytes.
    pub reserved: Option<MomentAnswer>,
    /// The bytes that were reserved but not live at the moment when the most bytes were reserved; null if the file has
    /// no reserved bytes.
    pub waste_bytes: Option<u64>,
    /// The requested bytes that are live at the end.
    pub end_requested_bytes: u64,
    /// The margin of error of the requested bytes at the end; null if they are exact.
    pub end_requested_bytes_error: Option<ErrorAnswer>,
    /// The bytes of the blocks that are live at the end, as rounded by the allocator; null if the file does not contain
    /// them.
    pub end_allocated_bytes: Option<u64>,
    /// The bytes that are reserved at the end; null if the file has no reserved bytes.
    pub end_reserved_bytes: Option<u64>,
    /// The number of times that the device ran out of memory.
    pub out_of_memory_count: usize,
    /// The number of the device's older events that were dropped because they did not fit in the recorder's ring.
    pub dropped: u64,
}

/// A device's memory at a given moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentAnswer {
    /// The requested bytes that were live at this moment.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The bytes that were reserved at this moment; null if the file has no reserved bytes.
    pub reserved_bytes: Option<u64>,
    /// The event that brought the memory to this level, as its index in the device's trace; null if the moment was
    /// before the first event.
    pub event: Option<usize>,
    /// The time of this moment in seconds; null if it was before the first event or the file does not record times.
    pub seconds: Option<f64>,
    /// The phase of the event in `event`; null if there is none.
    pub phase: Option<String>,
    /// The operator of the event in `event`; null if there is none.
    pub operator: Option<String>,
}

/// A comparison of the ranks for one kind of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RanksMemoryAnswer {
    /// The device whose memory is compared; it has no number if each rank has one device but the numbers differ.
    pub device: DeviceAnswer,
    /// The indices in `ranks` of the ranks that have this memory.
    pub members: Vec<usize>,
    /// The distribution over the ranks of each measure that any of them has.
    pub measures: Vec<MeasureAnswer>,
    /// The reason why outliers cannot be determined; null if they can.
    pub cannot_tell: Option<String>,
    /// The ranks that are outliers, starting with the rank furthest from the median.
    pub outliers: Vec<OutlierAnswer>,
    /// The spread between the ranks in each step; null unless at least two of them marked the same steps.
    pub skew: Option<SkewAnswer>,
}

/// The distribution of one measure over the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MeasureAnswer {
    /// The measure that is compared: `peak`, `reserved`, `waste` or `end`.
    pub measure: &'static str,
    /// The number of ranks that have this measure.
    pub ranks: usize,
    /// The median of the measure over the ranks that have it, in bytes.
    pub median_bytes: u64,
    /// The median of the ranks' distances from `median_bytes`.
    pub deviation_bytes: u64,
    /// The distance from `median_bytes` beyond which a rank is an outlier.
    pub tolerance_bytes: u64,
    /// The smallest value of the measure in any rank, in bytes.
    pub least_bytes: u64,
    /// The largest value of the measure in any rank, in bytes.
    pub most_bytes: u64,
}

/// A rank that is an outlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OutlierAnswer {
    /// The index of the rank in `ranks`.
    pub place: usize,
    /// The number of the rank; null if it is unknown.
    pub rank: Option<u64>,
    /// The measure in which the rank is an outlier.
    pub measure: &'static str,
    /// The rank's value of the measure, in bytes.
    pub own_bytes: u64,
    /// The median of the measure over all ranks, in bytes.
    pub median_bytes: u64,
    /// The rank's bytes minus the median; negative if the rank has less.
    pub change_bytes: i64,
    /// The groups in which the rank differs from the others, starting with those that explain the most. For `reserved`,
    /// these are the groups that were live at the peak. For `waste`, there are none because it is memory outside
    /// blocks.
    pub why: Vec<DifferenceAnswer>,
}

/// A group in which a rank differs from the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DifferenceAnswer {
    /// The group's name.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The key that identifies the group in every rank; for a line, `FILE:LINE FUNCTION`.
    pub key: String,
    /// The rank's requested bytes in the group.
    pub own_bytes: u64,
    /// The number of the rank's blocks in the group.
    pub own_count: u64,
    /// The median over all ranks of the requested bytes in the group; a rank without the group counts as 0.
    pub median_bytes: u64,
    /// The rank's bytes in the group minus the median; negative if the rank has less.
    pub change_bytes: i64,
    /// The number of other ranks that have blocks in the group.
    pub other_ranks: usize,
}

/// The spread between the ranks in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SkewAnswer {
    /// The name that all the steps share.
    pub name: String,
    /// The steps that at least two ranks have, by number.
    pub steps: Vec<StepAnswer>,
    /// For each rank that alone had the highest peak in some step, the number of such steps, in descending order.
    pub highest: Vec<HighestRankAnswer>,
}

/// The number of steps in which a rank alone had the highest peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HighestRankAnswer {
    /// The index of the rank in `ranks`.
    pub place: usize,
    /// The number of the rank; null if it is unknown.
    pub rank: Option<u64>,
    /// The number of steps in which the rank alone had the highest peak.
    pub steps: usize,
}

/// One step, compared across all ranks that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StepAnswer {
    /// The number of the step.
    pub number: u64,
    /// The number of ranks that have the step.
    pub ranks: usize,
    /// The median of the ranks' peaks of live requested bytes in the step.
    pub median_bytes: u64,
    /// The highest peak of live requested bytes that any rank had in the step.
    pub most_bytes: u64,
    /// The ratio of the highest peak to the median peak; null if the median is 0.
    pub ratio: Option<f64>,
    /// The index in `ranks` of the rank with the highest peak in the step; null if several ranks have it.
    pub highest: Option<usize>,
    /// The median over the ranks of the requested bytes that were live at the end of the step.
    pub end_median_bytes: u64,
    /// The most requested bytes that any rank had live at the end of the step.
    pub end_most_bytes: u64,
}

impl Ranks {
    /// Returns the report as `memtrack ranks --json` prints it.
    pub fn answer(&self) -> RanksAnswer {
        RanksAnswer {
            by: self.by.name(),
            answer: self.summary_sentences(),
            doubts: self.doubts.clone(),
            ranks: self.ranks.iter().map(rank_to_answer).collect(),
            memories: self.memories.iter().map(|memory| self.memory_to_answer(memory)).collect(),
            unread: self
                .unread
                .iter()
                .map(|(path, why)| UnreadAnswer { path: path.clone(), why: why.clone() })
                .collect(),
        }
    }

    fn memory_to_answer(&self, memory: &RanksMemory) -> RanksMemoryAnswer {
        RanksMemoryAnswer {
            device: match &*memory.name {
                "device" => DeviceAnswer { name: "device".into(), ..DeviceAnswer::default() },
                name => DeviceAnswer::from_name(name),
            },
            members: memory.members.iter().map(|&(place, _)| place).collect(),
            measures: memory
                .distributions
                .iter()
                .map(|(of, distribution)| measure_to_answer(*of, distribution))
                .collect(),
            cannot_tell: memory.cannot_tell.clone(),
            outliers: memory.outliers.iter().map(|one| self.outlier_to_answer(one)).collect(),
            skew: memory.skew.as_ref().map(|skew| self.skew_to_answer(skew)),
        }
    }

    fn outlier_to_answer(&self, outlier: &Outlier) -> OutlierAnswer {
        OutlierAnswer {
            place: outlier.rank,
            rank: self.ranks[outlier.rank].name.rank,
            measure: outlier.measure.name(),
            own_bytes: outlier.bytes,
            median_bytes: outlier.median,
            change_bytes: clamp_signed(outlier.by()),
            why: outlier.why.iter().map(difference_to_answer).collect(),
        }
    }

    fn skew_to_answer(&self, skew: &Skew) -> SkewAnswer {
        let highest = |&(place, steps): &(usize, usize)| HighestRankAnswer {
            place,
            rank: self.ranks[place].name.rank,
            steps,
        };
        SkewAnswer {
            name: skew.name.clone(),
            steps: skew.steps.iter().map(step_to_answer).collect(),
            highest: skew.highest.iter().map(highest).collect(),
        }
    }
}

fn rank_to_answer(rank: &RankDigest) -> RankAnswer {
    RankAnswer {
        rank: rank.name.rank,
        path: rank.file.clone(),
        job: rank.name.job.clone(),
        complete: rank.complete,
        is_pytorch: rank.is_pytorch,
        events: rank.events,
        begin_ns: rank.begin_ns,
        seconds_since: rank.since.name(),
        end_seconds: rank.end_seconds,
        devices: rank.devices.iter().map(device_to_answer).collect(),
    }
}

fn device_to_answer(device: &DeviceDigest) -> RankMemoryAnswer {
    RankMemoryAnswer {
        device: DeviceAnswer::new(device.device, &device.name, device.kind),
        peak: moment_to_answer(&device.peak),
        reserved: device.reserved.as_ref().map(moment_to_answer),
        waste_bytes: device.waste_bytes(),
        end_requested_bytes: device.end.requested_bytes,
        end_requested_bytes_error: device.end.error.answer(),
        end_allocated_bytes: device.end.allocated_bytes,
        end_reserved_bytes: device.end.reserved_bytes,
        out_of_memory_count: device.out_of_memory.len(),
        dropped: device.dropped,
    }
}

fn moment_to_answer(at: &MomentDigest) -> MomentAnswer {
    MomentAnswer {
        requested_bytes: at.requested_bytes,
        requested_bytes_error: at.error.answer(),
        reserved_bytes: at.reserved_bytes,
        event: at.event,
        seconds: at.seconds,
        phase: at.phase.clone(),
        operator: at.operator.clone(),
    }
}

fn measure_to_answer(measure: Measure, distribution: &Distribution) -> MeasureAnswer {
    MeasureAnswer {
        measure: measure.name(),
        ranks: distribution.count,
        median_bytes: distribution.median,
        deviation_bytes: distribution.deviation,
        tolerance_bytes: distribution.tolerance(),
        least_bytes: distribution.least,
        most_bytes: distribution.most,
    }
}

fn difference_to_answer(difference: &Difference) -> DifferenceAnswer {
    DifferenceAnswer {
        name: NameAnswer::from_text(&difference.name),
        key: difference.key.clone(),
        own_bytes: difference.bytes,
        own_count: difference.blocks,
        median_bytes: difference.median,
        change_bytes: clamp_signed(difference.by()),
        other_ranks: difference.others,
    }
}

fn step_to_answer(step: &StepSkew) -> StepAnswer {
    StepAnswer {
        number: step.number,
        ranks: step.ranks,
        median_bytes: step.median,
        most_bytes: step.most,
        ratio: Some(step.ratio()).filter(|ratio| ratio.is_finite()),
        highest: step.highest,
        end_median_bytes: step.end_median,
        end_most_bytes: step.end_most,
    }
}

/// Clamps a sum to a number that JSON parsers accept, because sums in a file from another source may be larger.
fn clamp_signed(by: i128) -> i64 {
    i64::try_from(by).unwrap_or(if by > 0 { i64::MAX } else { i64::MIN })
}
