//! One rank's file reduced to a few kilobytes, so that a thousand ranks fit in the memory of one snapshot. All reports
//! of `memtrack ranks` are computed from these digests, and its tables contain them.

use super::name::RankName;
use memtrack_blocks::estimate::Estimate;
use memtrack_model::event::DeviceKind;
use memtrack_model::snapshot::Since;

/// A rank's snapshot or recording, as reduced by [`RankDigest::of`](super::RankDigest::of).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RankDigest {
    /// The file's path, as used in messages.
    pub file: String,
    /// The rank and the job, if the file or its name states them.
    pub name: RankName,
    /// Whether the file is in PyTorch's format.
    pub is_pytorch: bool,
    /// Whether the file is complete, unlike a recording that was cut off.
    pub complete: bool,
    /// The program that was recorded; empty if the file does not name it.
    pub program: String,
    /// The process ID; 0 if the file does not contain it.
    pub pid: u32,
    /// The number of events in the file.
    pub events: u64,
    /// The time at which this digest's seconds are 0, in nanoseconds since the Unix epoch; `None` if the file has no
    /// times.
    pub begin_ns: Option<u64>,
    /// The origin from which this digest's seconds are counted.
    pub since: Since,
    /// The time of the last event in seconds; 0 if there are no events, and `None` if the file does not record the
    /// times of all events.
    pub end_seconds: Option<f64>,
    /// The name of the steps, if any are marked.
    pub step_name: Option<String>,
    /// The memory of the rank's devices, by number.
    pub devices: Vec<DeviceDigest>,
}

/// The memory of a rank on one device. Bytes are requested bytes (the sum of the sizes in a trace), unless they are
/// called allocated (with the allocator's rounding, known only for the end of the trace) or reserved (the size of segments).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceDigest {
    /// The device's ordinal in reports.
    pub device: u16,
    /// The device's name, which is `device 0`, `host heap`, `mapped memory` or `pinned host memory`.
    pub name: String,
    /// The kind of the memory.
    pub kind: DeviceKind,
    /// The number of the device's events in the file.
    pub events: u64,
    /// The number of older events that did not fit in the recorder's ring.
    pub dropped: u64,
    /// The moment when the most bytes were live.
    pub peak: MomentDigest,
    /// The moment when the most bytes were reserved; `None` if the file has no reserved bytes.
    pub reserved: Option<MomentDigest>,
    /// The moment after the last event.
    pub end: EndDigest,
    /// The moments at which memory ran out, oldest first.
    pub out_of_memory: Vec<OutOfMemoryDigest>,
    /// The groups at the peak, largest first.
    pub at_peak: Vec<GroupDigest>,
    /// The groups at the end, largest first.
    pub at_end: Vec<GroupDigest>,
    /// The steps that the program marked, in order.
    pub steps: Vec<StepDigest>,
    /// The highest number of bytes in each of several equal time bins.
    pub timeline: Timeline,
}

impl DeviceDigest {
    /// Returns the bytes that were reserved but not live when the most bytes were reserved: free memory in the cache,
    /// unusable gaps between blocks, and rounding. `None` if reserved bytes are unknown.
    pub fn waste_bytes(&self) -> Option<u64> {
        let at = self.reserved.as_ref()?;
        Some(at.reserved_bytes?.saturating_sub(at.requested_bytes))
    }
}

/// A device's memory at a given moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MomentDigest {
    /// Requested bytes that were live.
    pub requested_bytes: u64,
    /// The error of those bytes, in case blocks were sampled.
    pub error: Estimate,
    /// Reserved bytes; `None` if the file has none.
    pub reserved_bytes: Option<u64>,
    /// The event that reached this level, as its index in the device's trace; `None` before the first event.
    pub event: Option<usize>,
    /// The time in seconds; `None` if [`Self::event`] is `None` or the file does not record times.
    pub seconds: Option<f64>,
    /// The phase of that event: forward, backward or optimizer.
    pub phase: Option<String>,
    /// The operator of that event.
    pub operator: Option<String>,
}

/// A device's memory after the last event.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EndDigest {
    /// Requested bytes that are live.
    pub requested_bytes: u64,
    /// The error of those bytes, in case blocks were sampled.
    pub error: Estimate,
    /// The number of live blocks, where each sampled block counts as the number of blocks that it represents.
    pub blocks: u64,
    /// The bytes of live blocks as rounded by the allocator; `None` if the file does not contain them.
    pub allocated_bytes: Option<u64>,
    /// Reserved bytes; `None` if the file has none.
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
