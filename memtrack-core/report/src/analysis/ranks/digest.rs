//! One rank's file reduced to a few kilobytes, so that a thousand ranks fit into the memory of one snapshot.
//! All reports of `memtrack ranks` are computed from these digests, and its tables contain them.

use super::name::RankName;
use crate::analysis::estimate::Estimate;
use memtrack_model::snapshot::Since;

/// A rank's snapshot or recording, reduced by [`RankDigest::of`](super::RankDigest::of).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RankDigest {
    /// The path of the file, as messages name it.
    pub file: String,
    /// The rank and the job, as far as the file and its name state them.
    pub name: RankName,
    /// Whether the file is in PyTorch's form.
    pub is_pytorch: bool,
    /// Whether the file is complete: a recording that was cut off is not.
    pub complete: bool,
    /// The program that was recorded; empty where the file does not name it.
    pub program: String,
    /// The process ID; 0 where the file does not contain it.
    pub pid: u32,
    /// Events in the file.
    pub events: u64,
    /// The time at which this digest's seconds are 0, in nanoseconds since the Unix epoch; none where the file has no times.
    pub begin_ns: Option<u64>,
    /// The origin that the seconds of this digest are counted from.
    pub since: Since,
    /// The time of the last event, in seconds; 0 without any, and none if the file does not contain the times
    /// of all events.
    pub end_seconds: Option<f64>,
    /// The name of the steps, if some are marked.
    pub step_name: Option<String>,
    /// The memory of the rank's devices, by number.
    pub devices: Vec<DeviceDigest>,
}

/// The memory of a rank on one device. Bytes are requested bytes, the sum of sizes in a trace, unless they are called
/// allocated (rounded, known only at the end) or reserved (segments).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceDigest {
    /// The device's ordinal in reports.
    pub device: u16,
    /// The device's name: `device 0`, `host heap` or `pinned host memory`.
    pub name: String,
    /// Whether the device is the host heap.
    pub is_host: bool,
    /// Whether the device is pinned host memory.
    pub is_pinned: bool,
    /// The number of the device's events in the file.
    pub events: u64,
    /// Older events that did not fit the recorder's ring.
    pub dropped: u64,
    /// The moment when the most bytes were live.
    pub peak: MomentDigest,
    /// The moment when the most bytes were reserved; none where the file has no reserved bytes.
    pub reserved: Option<MomentDigest>,
    /// The moment after the last event.
    pub end: EndDigest,
    /// The moments at which memory ran out, oldest first.
    pub out_of_memory: Vec<OutOfMemoryDigest>,
    /// The groups at the peak, most bytes first.
    pub at_peak: Vec<GroupDigest>,
    /// The groups at the end, most bytes first.
    pub at_end: Vec<GroupDigest>,
    /// The steps that the program marked, in order.
    pub steps: Vec<StepDigest>,
    /// The maximum number of bytes in each of equal time bins.
    pub timeline: Timeline,
}

impl DeviceDigest {
    /// Returns the bytes that were reserved and not live at the moment with the most reserved bytes: free memory in the
    /// cache, unusable gaps between blocks, and rounding. None where reserved bytes are unknown.
    pub fn waste_bytes(&self) -> Option<u64> {
        let at = self.reserved.as_ref()?;
        Some(at.reserved_bytes?.saturating_sub(at.requested_bytes))
    }
}

/// A device at a moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MomentDigest {
    /// Requested bytes that were live.
    pub requested_bytes: u64,
    /// The error of those bytes, where blocks were sampled.
    pub error: Estimate,
    /// Reserved bytes; none where the file has none.
    pub reserved_bytes: Option<u64>,
    /// The event that reached this level, by its number in the device's trace; none: before the first event.
    pub event: Option<usize>,
    /// The time, in seconds; none where [`Self::event`] is none, or if the file does not contain the time.
    pub seconds: Option<f64>,
    /// The phase of that event: forward, backward or optimizer.
    pub phase: Option<String>,
    /// The operator of that event.
    pub operator: Option<String>,
}

/// A device after the last event.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EndDigest {
    /// Requested bytes that are live.
    pub requested_bytes: u64,
    /// The error of those bytes, where blocks were sampled.
    pub error: Estimate,
    /// Live blocks; for sampled blocks, the number of blocks that they represent.
    pub blocks: u64,
    /// Allocated bytes, rounded; none where the file has none.
    pub allocated_bytes: Option<u64>,
    /// Reserved bytes; none where the file has none.
    pub reserved_bytes: Option<u64>,
}

/// A moment at which memory ran out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutOfMemoryDigest {
    /// The event, by its number in the device's trace.
    pub event: usize,
    /// The time, in seconds; none if the file does not contain it.
    pub seconds: Option<f64>,
    /// Bytes that were requested.
    pub requested_bytes: u64,
    /// Bytes that were free on the device, if known.
    pub device_free_bytes: Option<u64>,
}

/// Blocks of one origin that were live at a moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupDigest {
    /// The identity of the group in every rank: for a line, `FILE:LINE FUNCTION` with the whole path.
    pub key: String,
    /// The name of the group in reports.
    pub name: String,
    /// Requested bytes.
    pub bytes: u64,
    /// The error of the bytes, where blocks were sampled.
    pub error: Estimate,
    /// Blocks; for sampled blocks, the number of blocks that they represent.
    pub blocks: u64,
}

/// The memory of a device in one step that the program marked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepDigest {
    /// The number of the step: the number in its name (`ProfilerStep#3`), or the number of steps before it.
    pub number: u64,
    /// The start, in seconds; none if the file does not contain the times of all events.
    pub begin_seconds: Option<f64>,
    /// The end, in seconds; none if the file does not contain the times of all events.
    pub end_seconds: Option<f64>,
    /// The most requested bytes that were live during the step, including bytes allocated before it.
    pub peak_requested_bytes: u64,
    /// The most bytes that were reserved during the step; none where the file has none.
    pub peak_reserved_bytes: Option<u64>,
    /// Requested bytes that were live when the step ended.
    pub end_requested_bytes: u64,
}

/// The memory of a device over time: the maximum in each of equal time bins, from the file's first event to its last. A bin
/// without events has the level at the end of the bin before.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// The start of the first bin, in seconds; in events if the digest has no [`begin_ns`](RankDigest::begin_ns).
    pub begin_seconds: f64,
    /// The length of a bin, in the same unit; 0 where all events have the same time: then there is a single bin.
    pub bin_seconds: f64,
    /// Requested bytes.
    pub requested_bytes: Vec<u64>,
    /// Reserved bytes; none where the file has none.
    pub reserved_bytes: Option<Vec<u64>>,
}
