//! The state at the end of a recording: live blocks, segments, and exact counts for each device.

use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, TaskId, ThreadId};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The device that the block is on.
    pub device: DeviceId,
    /// The address of the block.
    pub address: u64,
    /// The bytes that the client requested.
    pub size_bytes: u64,
    /// The stream that owns the block.
    pub stream: StreamId,
    /// The task that has allocated the block.
    pub task: TaskId,
    /// The stack of the allocation.
    pub stack: StackId,
    /// The scope of the allocation.
    pub scope: ScopeId,
    /// The time of the allocation, in ticks.
    pub ticks: u64,
    /// Flags, such as whether the block was sampled.
    pub flags: EventFlags,
    /// Whether the block's free was requested but has not yet completed.
    pub pending_free: bool,
}

impl LiveBlock {
    /// Returns the block that an event of a reader's table has allocated, without its task.
    pub fn of_allocation(event: &Event) -> Self {
        let Event { device, address, size_bytes, stream, stack, scope, ticks, flags, .. } = *event;
        let task = TaskId::NONE;
        Self { device, address, size_bytes, stream, task, stack, scope, ticks, flags, pending_free: false }
    }

    /// Returns the block that an event of the recorder has allocated, with the [task](Event::recorded_task) of a host block.
    pub fn of_recorded(event: &Event) -> Self {
        let task = event.recorded_task();
        let stream = if task.is_none() { event.stream } else { StreamId::default() };
        Self { task, stream, ..Self::of_allocation(event) }
    }

    /// Returns the event that has allocated the block, on an unknown thread, as the recorder writes it.
    pub fn recorded_allocation(&self) -> Event {
        self.allocation().with_task(self.task)
    }

    /// Returns the event that has allocated the block, on an unknown thread and without its task.
    pub fn allocation(&self) -> Event {
        let Self { device, address, size_bytes, stream, stack, scope, ticks, flags, .. } = *self;
        let (thread, action) = (ThreadId::NONE, Action::Alloc);
        Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags }
    }
}

/// A segment that its allocator had not yet returned to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The device that the segment is on.
    pub device: DeviceId,
    /// The first address of the segment.
    pub address: u64,
    /// The size of the segment in bytes.
    pub size_bytes: u64,
    /// The stream of the segment.
    pub stream: StreamId,
    /// The stack of the allocation.
    pub stack: StackId,
    /// The time of the allocation, in ticks.
    pub ticks: u64,
    /// Whether this is part of an expandable segment, that is, memory mapped into a larger range of addresses.
    pub is_expandable: bool,
}

impl Segment {
    /// Returns the segment that an event has allocated, or mapped into an expandable segment.
    pub fn of_allocation(event: &Event) -> Self {
        let Event { device, address, size_bytes, stream, stack, ticks, .. } = *event;
        let is_expandable = event.action == Action::SegmentMap;
        Self { device, address, size_bytes, stream, stack, ticks, is_expandable }
    }

    /// Returns the event that has allocated or mapped the segment, on an unknown thread.
    pub fn allocation(&self) -> Event {
        let Self { device, address, size_bytes, stream, stack, ticks, is_expandable } = *self;
        let action = if is_expandable { Action::SegmentMap } else { Action::SegmentAlloc };
        Event { ticks, address, size_bytes, stream, stack, device, action, ..Event::BLANK }
    }
}

/// Statistics on the sampling of the host heap's small blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Sampling {
    /// The exact number of blocks that were counted but not recorded; 0 if every block was recorded.
    pub unrecorded_blocks: u64,
    /// The number of bytes in the blocks that were counted but not recorded.
    pub unrecorded_bytes: u64,
    /// The largest mean interval between samples that any thread used, in bytes; 0 if no samples were taken.
    pub widest_interval_bytes: u64,
    /// The processor time used by the recorded threads, in seconds; 0 without a budget for the cost of recording.
    pub cpu_seconds: f64,
    /// The part of `cpu_seconds` during which every block was recorded, in seconds.
    pub exact_seconds: f64,
    /// The part of `cpu_seconds` spent on recording host blocks, in seconds, as measured by the recorder.
    pub spent_seconds: f64,
}

/// The peak of a heap whose small blocks were only counted, computed from sums that the recorder read at intervals. All
/// byte counts are bytes allocated minus bytes freed since the recording started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct CountedPeak {
    /// The time of the peak, in ticks. The peak comes after all events with the same or fewer ticks.
    pub ticks: u64,
    /// A lower bound on the live bytes at the peak, which is exact if only one thread allocates.
    pub bytes: u64,
    /// An upper bound on the live bytes between [`Self::since_ticks`] and [`Self::until_ticks`].
    pub most_bytes: u64,
    /// The time of the first reading. Until then, every block was recorded.
    pub since_ticks: u64,
    /// The time of the last reading.
    pub until_ticks: u64,
    /// In PyTorch's form, whose ticks are too coarse, the numbers of events in the heap's trace before [`Self::ticks`],
    /// [`Self::since_ticks`] and [`Self::until_ticks`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub events_before: Option<[u64; 3]>,
}

/// Counts of items that did not fit into the recorder's tables, whose maximum size is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Folded {
    /// The number of events that have no stack because the stack table was full.
    pub stacks: u64,
    /// The number of threads that are recorded as the unknown thread because there were too many to distinguish.
    pub threads: u64,
    /// The number of blocks that were not tracked because the table of live blocks was full (`Options::live_blocks`).
    /// Small blocks of the heap are only counted. Large blocks and device blocks have events, but they are not in the
    /// table of live blocks.
    pub blocks: u64,
    /// The number of the CUDA driver's allocations that are missing from all sums because their table was full.
    pub driver_allocations: u64,
    /// The number of bytes in the CUDA driver's allocations that are missing from all sums.
    pub driver_bytes: u64,
}

/// The counts for one device. If the recorder made them ([`Self::counted`]), they are exact and include events that the
/// ring or sampling omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceStatistics {
    /// The device.
    pub device: DeviceId,
    /// The number of events recorded.
    pub recorded: u64,
    /// The number of events that the ring dropped because of `max_entries`.
    pub dropped: u64,
    /// The requested bytes allocated since the start, including blocks that sampling omitted.
    pub allocated_bytes: u64,
    /// The bytes freed since the start, which may exceed `allocated_bytes` if memory from before the start was freed.
    pub freed_bytes: u64,
    /// The number of blocks allocated.
    pub allocations: u64,
    /// The number of blocks freed.
    pub frees: u64,
    /// The segment bytes held at the end. For the host heap, this is the resident set of the process, or 0 if unknown.
    pub reserved_bytes: u64,
    /// Whether the recorder itself counted the bytes and blocks. If not, they are 0 for a PyTorch file; for a truncated
    /// recording, they are sums over its events, without sample weights.
    #[cfg_attr(feature = "serde", serde(default = "counted", skip_serializing_if = "is_counted"))]
    pub counted: bool,
}

/// Returns the default in files, where a row contains the recorder's counts unless it states otherwise.
#[cfg(feature = "serde")]
const fn counted() -> bool {
    true
}

#[cfg(feature = "serde")]
fn is_counted(counted: &bool) -> bool {
    *counted
}

impl DeviceStatistics {
    /// Creates counts for `device` that are all 0.
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
