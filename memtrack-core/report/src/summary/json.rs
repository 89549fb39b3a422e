//! A summary as JSON, with bytes and counts as integers, times in seconds, and shares from 0 to 1. As in PyTorch's
//! statistics, `allocated` bytes include rounding; `requested` bytes and all sums over the trace do not. Numbers that
//! are unknown, or that would be meaningless for a heap, are null.
//!
//! **Why a form of its own?** A [`DeviceSummary`] consists of totals of several kinds, which the text arranges in
//! sentences. The JSON is one flat list of numbers.

use super::{DeviceSummary, DriverMoment, HeldMemory, Oom};
use crate::top::TopRow;
use memtrack_frames::ownership::Explanation;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer};
use memtrack_model::snapshot::{Folded, ReadingMoment, Since};
use serde::Serialize;
use serde_json::Value;

/// The memory of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceSummaryAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// Whether the recording is complete. If not, the true peaks and the memory held at the end are at least as large
    /// as the reported numbers.
    pub complete: bool,
    /// Hints on where to start, as sentences.
    pub look_first: Vec<String>,
    /// The device's peak of live requested bytes.
    pub peak: SummaryPeakAnswer,
    /// The number of segments at the end; null if the file does not contain reserved memory, as for a heap.
    pub segments: Option<u64>,
    /// The number of segments at the end that are part of an expandable segment; null if `segments` is.
    pub expandable_segments: Option<u64>,
    /// The total bytes of all segments at the end; null if `segments` is.
    pub reserved_bytes: Option<u64>,
    /// The highest number of reserved bytes at any time; null if `segments` is.
    pub reserved_peak_bytes: Option<u64>,
    /// For a heap, the process's resident set at the end, in bytes; null if it is unknown.
    pub resident_bytes: Option<u64>,
    /// Bytes in allocated blocks at the end. For a heap, these are the requested bytes, because its rounding is
    /// unknown. Null if the file does not contain the memory that is held at the end.
    pub allocated_bytes: Option<u64>,
    /// The number of allocated blocks at the end; null if `allocated_bytes` is.
    pub allocated_blocks: Option<u64>,
    /// The requested bytes of the blocks that are allocated at the end; null if any block has no requested size, or if
    /// the file does not contain the memory that is held at the end.
    pub requested_bytes: Option<u64>,
    /// Bytes in blocks that are allocated at the end, or that were freed but are still in use by a stream; null if
    /// `allocated_bytes` is.
    pub active_bytes: Option<u64>,
    /// Whether `allocated_bytes` and `allocated_blocks` are estimates from samples.
    pub estimated: bool,
    /// Bytes in free blocks, the parts of segments that are neither allocated nor in use by a stream; null if
    /// `segments` is.
    pub inactive_bytes: Option<u64>,
    /// Bytes in free blocks that share a segment with other blocks. Expandable segments do not count. Null if
    /// `segments` is.
    pub inactive_split_bytes: Option<u64>,
    /// The size of the largest free block in bytes; null if `segments` is.
    pub largest_inactive_bytes: Option<u64>,
    /// The size in bytes of the largest free block that shares a segment with other blocks. Expandable segments do not
    /// count. Null if `segments` is.
    pub largest_inactive_split_bytes: Option<u64>,
    /// The bytes in free blocks that share a segment with other blocks, as a share of the reserved bytes, from 0 to 1.
    /// Expandable segments do not count. Null if `segments` is.
    pub fragmentation: Option<f64>,
    /// Bytes that rounding added to allocated blocks; null if `segments` is, or if any block has no requested size.
    pub internal_free_bytes: Option<u64>,
    /// Bytes in free blocks, the same number as `inactive_bytes`; null if `segments` is.
    pub external_free_bytes: Option<u64>,
    /// Bytes in blocks that were freed but are still in use by a stream; null if `allocated_bytes` is.
    pub pending_free_bytes: Option<u64>,
    /// The number of blocks that were freed but are still in use by a stream; null if `allocated_bytes` is.
    pub pending_free_blocks: Option<u64>,
    /// Bytes in segments that contain only free blocks. Emptying the cache would release them. Null if `segments` is.
    pub releasable_bytes: Option<u64>,
    /// The private pools, largest first; null if `segments` is.
    pub private_pools: Option<Vec<PoolAnswer>>,
    /// The number of events in the trace.
    pub events: u64,
    /// The number of older events that the recorder dropped.
    pub dropped_events: u64,
    /// The number of missing parts of the recording that contained the dropped events.
    pub dropped_parts: u64,
    /// The number of scope entries that did not fit in the recorder's tables; null for PyTorch's own files.
    pub folded_scopes: Option<u64>,
    /// Counts of everything else that did not fit in the recorder's tables; null for PyTorch's own files.
    pub folded: Option<Folded>,
    /// The number of blocks that were live before the trace started.
    pub older_blocks: u64,
    /// The margin of error of the number of blocks that were live before the trace started; null if it is exact.
    pub older_blocks_error: Option<ErrorAnswer>,
    /// The requested bytes of the blocks that were live before the trace started.
    pub older_bytes: u64,
    /// The margin of error of the bytes that were live before the trace started; null if they are exact.
    pub older_bytes_error: Option<ErrorAnswer>,
    /// Whether the numbers for blocks that were live before the trace started are estimates from samples.
    pub older_estimated: bool,
    /// The number of blocks that were live before the trace started and were freed within it.
    pub frees_without_allocation: u64,
    /// The number of blocks that were allocated within the trace and are live at its end.
    pub live_at_end_blocks: u64,
    /// The margin of error of the number of blocks that were allocated within the trace and are live at its end; null
    /// if it is exact.
    pub live_at_end_blocks_error: Option<ErrorAnswer>,
    /// The requested bytes of the blocks that were allocated within the trace and are live at its end.
    pub live_at_end_bytes: u64,
    /// The margin of error of the bytes that were allocated within the trace and are live at its end; null if they are
    /// exact.
    pub live_at_end_bytes_error: Option<ErrorAnswer>,
    /// Whether the numbers for blocks that were allocated within the trace and are live at its end are estimates from
    /// samples.
    pub live_at_end_estimated: bool,
    /// The number of times that memory ran out.
    pub out_of_memory_events: u64,
    /// The most recent times that memory ran out, up to five.
    pub out_of_memory: Vec<OutOfMemoryAnswer>,
    /// Contradictions between the file's numbers, as sentences.
    pub contradictions: Vec<String>,
    /// The CUDA driver's reports on the device; empty if the driver was not queried.
    pub driver: Vec<DriverAnswer>,
    /// The rules that determined the lines of the largest groups at the peak; null without `--explain`.
    pub explained: Option<Vec<Explanation>>,
}

/// The peak of a device's live requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SummaryPeakAnswer {
    /// Requested bytes that were live at the peak.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes at the peak; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// Whether the requested bytes at the peak include sampled blocks.
    pub estimated: bool,
    /// The event that reached the peak, as its index in the device's trace; null if the peak was before the first
    /// event.
    pub event: Option<usize>,
    /// The time of the peak in seconds; null if the peak was before the first event.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` of the recording, or `first_event`.
    pub seconds_since: &'static str,
    /// Reserved bytes at the peak of requested bytes; null if the file does not contain reserved memory, as for a heap.
    pub reserved_bytes: Option<u64>,
    /// The memory that was live at the peak, by category; null if the file has no categories.
    pub categories: Option<Vec<TopRow>>,
}

/// The memory of a private pool at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PoolAnswer {
    /// The pool's id, a pair of numbers.
    pub pool: [u64; 2],
    /// The number of segments in the pool.
    pub segments: u64,
    /// The total bytes of the pool's segments.
    pub reserved_bytes: u64,
    /// Bytes in the pool's allocated blocks.
    pub allocated_bytes: u64,
    /// The number of allocated blocks in the pool.
    pub allocated_blocks: u64,
    /// The requested bytes of the pool's allocated blocks; null if any block has no requested size.
    pub requested_bytes: Option<u64>,
    /// Bytes in the pool's blocks that were freed but are still in use by a stream.
    pub pending_free_bytes: u64,
    /// Bytes in the pool's free blocks.
    pub inactive_bytes: u64,
}

/// A moment at which memory ran out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OutOfMemoryAnswer {
    /// The out-of-memory event, as its index in the device's trace.
    pub event: usize,
    /// The time of the event in seconds; null if the file does not record it.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` of the recording, `first_event`, or `first_timed_event`
    /// if only some events have times.
    pub seconds_since: &'static str,
    /// The bytes that the failed allocation requested.
    pub requested_bytes: u64,
    /// The device's free bytes at that moment; null if unknown.
    pub device_free_bytes: Option<u64>,
    /// The requested bytes that were live at that moment.
    pub live_bytes: u64,
    /// The margin of error of the live bytes; null if they are exact.
    pub live_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks that were live at that moment.
    pub live_blocks: u64,
    /// The margin of error of the number of live blocks; null if it is exact.
    pub live_blocks_error: Option<ErrorAnswer>,
    /// Whether the live bytes and blocks are estimates from samples.
    pub live_estimated: bool,
}

/// The CUDA driver's report on a device at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DriverAnswer {
    /// The kind of moment at which the driver was queried.
    pub moment: ReadingMoment,
    /// The time of the report in seconds.
    pub seconds: f64,
    /// The origin from which the seconds are counted: `start` of the recording, or `first_event`.
    pub seconds_since: &'static str,
    /// The device's total bytes.
    pub total_bytes: u64,
    /// The device's free bytes.
    pub free_bytes: u64,
    /// The bytes of the device's memory that are in use by any process.
    pub used_bytes: u64,
    /// Bytes of device memory that the program held at this moment, as recorded by memtrack.
    pub tracked_bytes: u64,
    /// Bytes of device memory in use that are neither recorded by memtrack nor cached by the driver's memory pools; 0
    /// if more is recorded than in use.
    pub untracked_bytes: u64,
    /// The number of the driver's memory pools that were queried: the device's default pool and those that the program
    /// created.
    pub pools: u32,
    /// Bytes that the driver's memory pools reserve.
    pub pool_reserved_bytes: u64,
    /// The sum of the peak reserved bytes of the driver's memory pools.
    pub pool_reserved_peak_bytes: u64,
    /// Bytes in the driver's memory pools that the program uses.
    pub pool_used_bytes: u64,
    /// The sum of the peak used bytes of the driver's memory pools.
    pub pool_used_peak_bytes: u64,
    /// Bytes that the driver's memory pools reserve but that are not in use.
    pub pool_cached_bytes: u64,
    /// The number of other processes' allocations that this process opened (CUDA IPC).
    pub opened: u64,
    /// The bytes of other processes' allocations that this process opened (CUDA IPC).
    pub opened_bytes: u64,
}

impl DeviceSummary {
    /// Returns the summary as `memtrack summary --json` prints it.
    pub fn answer(&self) -> DeviceSummaryAnswer {
        let held = &self.held;
        let (allocated_bytes, allocated_blocks, estimated) = self.allocated();
        // A heap has no segments, so numbers about segments would be meaningless.
        let of_segments = |number: u64| self.has_reserved_bytes.then_some(number);
        // A file without segments does not show which memory is held.
        let of_held = |number: u64| self.has_held_bytes.then_some(number);
        // Only memtrack's recorder has tables that can overflow.
        let is_recording = self.peak.highest.since == Since::Start;
        let pools = || self.private_pools.iter().map(pool_to_answer).collect();
        DeviceSummaryAnswer {
            device: DeviceAnswer::new(self.device, &self.device_name, self.kind),
            complete: self.complete,
            look_first: self.look_first(),
            peak: SummaryPeakAnswer {
                requested_bytes: self.peak_bytes(),
                requested_bytes_error: self.peak_error().answer(),
                estimated: self.peak.highest.estimated,
                event: self.peak.highest.event,
                seconds: self.peak.highest.seconds,
                seconds_since: self.peak.highest.since.name(),
                reserved_bytes: of_segments(self.peak.highest.reserved_bytes.unwrap_or_default()),
                categories: self.peak.by_category.as_ref().map(|report| report.rows.clone()),
            },
            segments: of_segments(held.segments),
            expandable_segments: of_segments(held.expandable),
            reserved_bytes: of_segments(held.reserved),
            reserved_peak_bytes: of_segments(self.reserved_peak.bytes),
            resident_bytes: self.resident_bytes,
            allocated_bytes: of_held(allocated_bytes),
            allocated_blocks: of_held(allocated_blocks),
            requested_bytes: match self.has_reserved_bytes {
                true => held.requested(),
                false => of_held(allocated_bytes),
            },
            active_bytes: of_held(allocated_bytes.saturating_add(held.pending)),
            estimated,
            inactive_bytes: of_segments(held.inactive),
            inactive_split_bytes: of_segments(held.inactive_split),
            largest_inactive_bytes: of_segments(held.largest_inactive),
            largest_inactive_split_bytes: of_segments(held.largest_inactive_split),
            fragmentation: self.has_reserved_bytes.then(|| held.fragmentation()),
            internal_free_bytes: held.rounding().and_then(of_segments),
            external_free_bytes: of_segments(held.inactive),
            pending_free_bytes: self.has_held_bytes.then_some(held.pending),
            pending_free_blocks: self.has_held_bytes.then_some(held.pending_blocks),
            releasable_bytes: of_segments(held.free_segment_bytes),
            private_pools: self.has_reserved_bytes.then(pools),
            events: self.events,
            dropped_events: self.dropped,
            dropped_parts: self.earlier_parts,
            folded_scopes: is_recording.then_some(self.folded_scopes),
            folded: is_recording.then_some(self.folded),
            older_blocks: self.older.blocks,
            older_blocks_error: self.older.blocks_error.answer(),
            older_bytes: self.older.bytes,
            older_bytes_error: self.older.bytes_error.answer(),
            older_estimated: self.older.estimated,
            frees_without_allocation: self.frees_without_allocation,
            live_at_end_blocks: self.retained.blocks,
            live_at_end_blocks_error: self.retained.blocks_error.answer(),
            live_at_end_bytes: self.retained.bytes,
            live_at_end_bytes_error: self.retained.bytes_error.answer(),
            live_at_end_estimated: self.retained.estimated,
            out_of_memory_events: self.oom_count,
            out_of_memory: self.ooms.iter().map(oom_to_answer).collect(),
            contradictions: self.contradictions(),
            driver: self.driver.iter().map(driver_to_answer).collect(),
            explained: None,
        }
    }

    /// Returns the summary as JSON, with the same content as [`Self::answer`].
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.answer()).unwrap_or_default()
    }
}

fn pool_to_answer(&((first, second), held): &((u64, u64), HeldMemory)) -> PoolAnswer {
    PoolAnswer {
        pool: [first, second],
        segments: held.segments,
        reserved_bytes: held.reserved,
        allocated_bytes: held.allocated,
        allocated_blocks: held.blocks,
        requested_bytes: held.requested(),
        pending_free_bytes: held.pending,
        inactive_bytes: held.inactive,
    }
}

fn oom_to_answer(oom: &Oom) -> OutOfMemoryAnswer {
    OutOfMemoryAnswer {
        event: oom.event,
        seconds: oom.seconds,
        seconds_since: oom.since.name(),
        requested_bytes: oom.requested_bytes,
        device_free_bytes: oom.device_free_bytes,
        live_bytes: oom.live.bytes,
        live_bytes_error: oom.live.bytes_error.answer(),
        live_blocks: oom.live.blocks,
        live_blocks_error: oom.live.blocks_error.answer(),
        live_estimated: oom.live.estimated,
    }
}

fn driver_to_answer(moment: &DriverMoment) -> DriverAnswer {
    let reading = &moment.reading;
    DriverAnswer {
        moment: reading.moment,
        seconds: moment.seconds,
        seconds_since: moment.since.name(),
        total_bytes: reading.total_bytes,
        free_bytes: reading.free_bytes,
        used_bytes: reading.used_bytes(),
        tracked_bytes: reading.tracked_bytes,
        untracked_bytes: reading.untracked_bytes(),
        pools: reading.pools,
        pool_reserved_bytes: reading.pool_reserved_bytes,
        pool_reserved_peak_bytes: reading.pool_reserved_peak_bytes,
        pool_used_bytes: reading.pool_used_bytes,
        pool_used_peak_bytes: reading.pool_used_peak_bytes,
        pool_cached_bytes: reading.cached_bytes(),
        opened: reading.opened.into(),
        opened_bytes: reading.opened_bytes,
    }
}
