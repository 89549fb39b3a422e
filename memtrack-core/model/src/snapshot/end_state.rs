//! The state at the end of a recording: live blocks, segments, and exact counts per device.

use crate::event::{DeviceId, EventFlags, ScopeId, StackId, StreamId};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its device.
    pub device: DeviceId,
    /// Its address.
    pub address: u64,
    /// The bytes that the client requested.
    pub size_bytes: u64,
    /// The stream that owns it.
    pub stream: StreamId,
    /// The stack of its allocation.
    pub stack: StackId,
    /// The scope of its allocation.
    pub scope: ScopeId,
    /// The time of its allocation, in ticks.
    pub ticks: u64,
    /// Flags, such as whether the block was sampled.
    pub flags: EventFlags,
    /// Whether its free was requested but has not completed.
    pub pending_free: bool,
}

/// A segment that its allocator had not returned to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its device.
    pub device: DeviceId,
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its stream.
    pub stream: StreamId,
    /// The stack of its allocation.
    pub stack: StackId,
    /// The time of its allocation, in ticks.
    pub ticks: u64,
    /// Whether it is part of an expandable segment: memory mapped into a larger range of addresses.
    pub is_expandable: bool,
}

/// The sampling of the host heap's small blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Sampling {
    /// The exact number of blocks that were counted but not recorded; 0 if every block was recorded.
    pub unrecorded_blocks: u64,
    /// The bytes of these blocks.
    pub unrecorded_bytes: u64,
    /// The largest mean interval between samples that any thread used, in bytes; 0 if no samples were taken.
    pub widest_interval_bytes: u64,
    /// Processor time of the threads that recorded, in seconds; 0 without a budget.
    pub cpu_seconds: f64,
    /// The part of that time in which every block was recorded.
    pub exact_seconds: f64,
    /// The part of that time that recording host blocks took, as measured by the recorder.
    pub spent_seconds: f64,
}

/// The peak of a heap whose small blocks were only counted, from sums that the recorder read at intervals. All byte counts
/// are bytes allocated minus bytes freed since recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct CountedPeak {
    /// The time of the peak: after all events up to these ticks.
    pub ticks: u64,
    /// A lower bound of the live bytes at the peak; exact if only one thread allocates.
    pub bytes: u64,
    /// An upper bound of the live bytes between [`Self::since_ticks`] and [`Self::until_ticks`].
    pub most_bytes: u64,
    /// The time of the first reading; until then, every block was recorded.
    pub since_ticks: u64,
    /// The time of the last reading.
    pub until_ticks: u64,
    /// In PyTorch's form, whose ticks are too coarse: the numbers of events in the heap's trace before
    /// [`Self::ticks`], [`Self::since_ticks`] and [`Self::until_ticks`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub events_before: Option<[u64; 3]>,
}

/// Counts of items that did not fit into the recorder's tables, which have a fixed maximum size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Folded {
    /// Events that have no stack because the table of stacks was full.
    pub stacks: u64,
    /// Threads that are recorded as the unknown thread.
    pub threads: u64,
    /// Blocks that were not tracked because the table of live blocks was full (`Options::live_blocks`). Small blocks of
    /// the heap are only counted; large blocks and those of devices have events, but are not in the table of live blocks.
    pub blocks: u64,
    /// Allocations that the CUDA driver's hook left out of all sums for the same reason.
    pub driver_allocations: u64,
    /// The bytes of these allocations.
    pub driver_bytes: u64,
}

/// Counts of one device: exact where the recorder made them ([`Self::counted`]), including events that the ring
/// or sampling omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceStatistics {
    /// The device.
    pub device: DeviceId,
    /// Events recorded.
    pub recorded: u64,
    /// Events that the ring dropped because of `max_entries`.
    pub dropped: u64,
    /// Requested bytes allocated since the start; blocks that sampling omitted are included.
    pub allocated_bytes: u64,
    /// Bytes freed since the start; may exceed `allocated_bytes` if memory from before the start was freed.
    pub freed_bytes: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Segment bytes held at the end; for the host heap, the resident set of the process, 0 when unknown.
    pub reserved_bytes: u64,
    /// Whether the recorder itself counted the bytes and blocks. Otherwise they are 0 for a PyTorch file, and for a
    /// truncated recording they are sums over its events, without the weights of samples.
    #[cfg_attr(feature = "serde", serde(default = "counted", skip_serializing_if = "is_counted"))]
    pub counted: bool,
}

/// Returns the default in files: a row contains the recorder's counts unless it states otherwise.
#[cfg(feature = "serde")]
const fn counted() -> bool {
    true
}

#[cfg(feature = "serde")]
fn is_counted(counted: &bool) -> bool {
    *counted
}

impl DeviceStatistics {
    /// Creates the counts of `device`, all 0.
    pub const fn of(device: DeviceId) -> Self {
        Self {
            device,
            recorded: 0,
            dropped: 0,
            allocated_bytes: 0,
            freed_bytes: 0,
            allocations: 0,
            frees: 0,
            reserved_bytes: 0,
            counted: true,
        }
    }
}
