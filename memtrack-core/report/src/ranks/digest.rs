//! One rank's file reduced to a few kilobytes, so that a thousand ranks fit in the memory of one snapshot. All reports
//! of `memtrack ranks` are computed from these digests, and its tables contain them.
//!
//! Bytes are requested bytes (the sum of the sizes in a trace), unless they are called allocated (with the allocator's
//! rounding, known only for the end of the trace) or reserved (the size of segments).

use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::snapshot::Since;
use serde::{Serialize, Serializer};

/// A rank of the job, with its file and its memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankDigest {
    /// The number of the rank; null if neither the file nor its name states it.
    pub rank: Option<u64>,
    /// The path of the rank's file.
    #[serde(rename = "path")]
    pub file: String,
    /// The job that the rank belongs to; null if neither the file nor a folder states it.
    pub job: Option<String>,
    /// The number of ranks in the job, if the file states it.
    #[serde(skip)]
    pub world: Option<u64>,
    /// Whether the file is complete; false for a recording that was cut off.
    pub complete: bool,
    /// Whether the file is a snapshot from PyTorch.
    pub is_pytorch: bool,
    /// The program that was recorded; empty if the file does not name it.
    #[serde(skip)]
    pub program: String,
    /// The process ID; 0 if the file does not contain it.
    #[serde(skip)]
    pub pid: u32,
    /// The number of events in the file.
    pub events: u64,
    /// The origin from which the rank's seconds are counted, in nanoseconds since the Unix epoch; null if the file has
    /// no times.
    pub begin_ns: Option<u64>,
    /// The origin from which the rank's seconds are counted, by name: `start` of the recording, `first_event`, or
    /// `first_timed_event` if only some events have times.
    #[serde(rename = "seconds_since")]
    pub since: Since,
    /// The time of the last event in seconds; null if the file does not record the times of all events.
    pub end_seconds: Option<f64>,
    /// The name of the steps, if any are marked.
    #[serde(skip)]
    pub step_name: Option<String>,
    /// The rank's memory on each device.
    pub devices: Vec<DeviceDigest>,
}

/// A rank's memory on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceDigest {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's ordinal in reports, which the host's memory has too.
    #[serde(skip)]
    pub ordinal: u16,
    /// The number of the device's events in the file.
    #[serde(skip)]
    pub events: u64,
    /// The rank's memory at the moment when the most bytes were live.
    pub peak: MomentDigest,
    /// The rank's memory at the moment when the most bytes were reserved; null if the file has no reserved bytes.
    pub reserved: Option<MomentDigest>,
    /// The bytes that were reserved but not live at the moment when the most bytes were reserved; null if the file has
    /// no reserved bytes.
    pub waste_bytes: Option<u64>,
    /// The moment after the last event.
    #[serde(flatten)]
    pub end: EndDigest,
    /// The moments at which memory ran out, oldest first; in JSON, their number.
    #[serde(rename = "out_of_memory_count", serialize_with = "serialize_count")]
    #[cfg_attr(feature = "schema", schemars(with = "usize"))]
    pub out_of_memory: Vec<OutOfMemoryDigest>,
    /// The number of the device's older events that were dropped because they did not fit in the recorder's ring.
    pub dropped: u64,
    /// The groups at the peak, largest first.
    #[serde(skip)]
    pub at_peak: Vec<GroupDigest>,
    /// The groups at the end, largest first.
    #[serde(skip)]
    pub at_end: Vec<GroupDigest>,
    /// The steps that the program marked, in order.
    #[serde(skip)]
    pub steps: Vec<StepDigest>,
    /// The highest number of bytes in each of several equal time bins.
    #[serde(skip)]
    pub timeline: Timeline,
}

fn serialize_count<S: Serializer>(moments: &[OutOfMemoryDigest], to: S) -> Result<S::Ok, S::Error> {
    moments.len().serialize(to)
}

/// A device's memory at a given moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentDigest {
    /// The requested bytes that were live at this moment.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
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

/// A device's memory after the last event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct EndDigest {
    /// The requested bytes that are live at the end.
    #[serde(rename = "end_requested_bytes")]
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes at the end; null if they are exact.
    #[serde(rename = "end_requested_bytes_error")]
    pub error: Estimate,
    /// The number of live blocks, where each sampled block counts as the number of blocks that it represents.
    #[serde(skip)]
    pub blocks: u64,
    /// The bytes of the blocks that are live at the end, as rounded by the allocator; null if the file does not contain
    /// them.
    #[serde(rename = "end_allocated_bytes")]
    pub allocated_bytes: Option<u64>,
    /// The bytes that are reserved at the end; null if the file has no reserved bytes.
    #[serde(rename = "end_reserved_bytes")]
    pub reserved_bytes: Option<u64>,
}

/// A moment at which memory ran out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutOfMemoryDigest {
    /// The event, as its index in the device's trace.
    pub event: usize,
    /// The time in seconds; `None` if the file does not record it.
    pub seconds: Option<f64>,
    /// The bytes of the request that failed.
    pub requested_bytes: u64,
    /// Bytes that were free on the device, if known.
    pub device_free_bytes: Option<u64>,
}

/// Blocks with the same origin that were live at a given moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupDigest {
    /// The key that identifies the group in every rank; for a line, `FILE:LINE FUNCTION` with the full path.
    pub key: String,
    /// The group's name in reports.
    pub name: String,
    /// Requested bytes.
    pub bytes: u64,
    /// The error of the bytes, in case blocks were sampled.
    pub error: Estimate,
    /// The number of blocks, where each sampled block counts as the number of blocks that it represents.
    pub blocks: u64,
}

/// The memory of a device during one step that the program marked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepDigest {
    /// The number of the step: either the number in its name (`ProfilerStep#3`) or the number of steps before it.
    pub number: u64,
    /// The start in seconds; `None` if the file does not record the times of all events.
    pub begin_seconds: Option<f64>,
    /// The end in seconds; `None` if the file does not record the times of all events.
    pub end_seconds: Option<f64>,
    /// The most requested bytes that were live during the step, including bytes allocated before it.
    pub peak_requested_bytes: u64,
    /// The most bytes that were reserved during the step; `None` if the file has no reserved bytes.
    pub peak_reserved_bytes: Option<u64>,
    /// Requested bytes that were live when the step ended.
    pub end_requested_bytes: u64,
}

/// The memory of a device over time: the maximum in each of several equal time bins, from the file's first event to its
/// last. A bin without events has the level at the end of the previous bin.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// The start of the first bin in seconds, or in events if the digest has no [`begin_ns`](RankDigest::begin_ns).
    pub begin_seconds: f64,
    /// The length of a bin in the same unit; 0 if all events have the same time, in which case there is a single bin.
    pub bin_seconds: f64,
    /// For each bin, the most requested bytes that were live.
    pub requested_bytes: Vec<u64>,
    /// For each bin, the most bytes that were reserved; `None` if the file has no reserved bytes.
    pub reserved_bytes: Option<Vec<u64>>,
}
