//! A one-page summary of a snapshot: for each device, the held memory, the peak, the fragmentation, the missing parts
//! of the trace, and up to three hints. `memtrack summary` prints it. `text` formats the summary as text and `json` as
//! JSON.

mod contradictions;
mod driver_moments;
mod json;
mod text;

use crate::at_peak::{AtPeak, PeakKind};
use crate::top::rows::{KnownTotals, Sorter};
use crate::top::{By, TopOptions, TopRow};
pub use driver_moments::DriverMoment;
#[doc(hidden)]
pub use driver_moments::memory_in_use_text;
pub use json::{DeviceSummaryAnswer, DriverAnswer, OutOfMemoryAnswer, PoolAnswer, SummaryPeakAnswer};
use memtrack_blocks::estimate::{self, Estimate, Precision};
use memtrack_blocks::held::HeldMemory;
use memtrack_blocks::lifetimes::{Lifetime, is_estimate, lifetimes};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::{HeldAtEnd, Net, counted_at_end, net};
use memtrack_blocks::not_recorded::{missing_stacks, recording_was_off};
use memtrack_blocks::reserved::{ReservedPeak, has_held_bytes, has_reserved_bytes};
use memtrack_frames::ownership::{Owners, Rules};
use memtrack_model::event::{Action, DeviceId, DeviceKind};
use memtrack_model::snapshot::{Folded, Since, Snapshot};
use memtrack_symbols::Symbolizer;
pub use text::{HintSubject, origin_of};

/// The maximum number of `oom` events to list.
const MAX_OOMS: usize = 5;

/// The summary of one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceSummary {
    /// The device's ordinal in reports.
    pub device: u16,
    /// The device's name, which is `device 0`, `host heap`, `mapped memory` or `pinned host memory`.
    pub device_name: String,
    /// The kind of the memory.
    pub kind: DeviceKind,
    /// Whether the file contains the memory that an allocator reserved for the device. If not, numbers about segments
    /// are meaningless.
    pub has_reserved_bytes: bool,
    /// Whether the file contains the memory that is held at the end; PyTorch's files may contain only events.
    pub has_held_bytes: bool,
    /// Whether the recording is complete. If not, the true peaks and the memory held at the end are at least as large
    /// as these numbers.
    pub complete: bool,
    /// The memory that the device holds at the end.
    pub held: HeldMemory,
    /// The memory that each private pool holds at the end, with the pool's id, largest first.
    pub private_pools: Vec<((u64, u64), HeldMemory)>,
    /// The memory that the device holds at the end by the recorder's own count. This is set only for a sampled heap,
    /// because its count is exact and [`Self::held`] is only an estimate. It is `None` if memory from before the
    /// recording was freed, because the count is then too low.
    pub counted: Option<HeldAtEnd>,
    /// The recorder's own count of memory that was allocated and not freed; set only for a sampled heap. If memory from
    /// before the recording was freed, the count is lower than the memory that the heap holds and may be negative.
    pub net: Option<Net>,
    /// For a heap, the process's resident set at the end, if known.
    pub resident_bytes: Option<u64>,
    /// The peak of requested bytes, with the largest groups by line in the user's code.
    pub peak: AtPeak,
    /// The peak of reserved bytes.
    pub reserved_peak: ReservedPeak,
    /// The number of events in the device's trace, counted as PyTorch does.
    pub events: u64,
    /// The number of events that the recorder dropped; 0 if unknown.
    pub dropped: u64,
    /// The number of scope entries that did not fit in the recorder's tables, over the whole recording.
    pub folded_scopes: u64,
    /// Counts of everything else that did not fit in the recorder's tables.
    pub folded: Folded,
    /// The number of missing parts of the recording that contained the dropped events; 0 unless the recording was
    /// written in parts and the oldest parts were deleted.
    pub earlier_parts: u64,
    /// Blocks that were live before the trace started.
    pub older: BlockTotals,
    /// The number of blocks in [`Self::older`] that were freed in the trace. Their allocations were lost or happened
    /// before the recording.
    pub frees_without_allocation: u64,
    /// Blocks that are live at the end according to the trace and the table of live blocks.
    pub live: BlockTotals,
    /// Blocks that were allocated within the trace and are live at its end.
    pub retained: BlockTotals,
    /// The number and bytes of blocks in [`Self::retained`] that are in no segment because the trace and the segments
    /// were captured at different moments.
    pub outside_segments: (u64, u64),
    /// The line in the user's code that allocated the most bytes in [`Self::retained`] or, if the largest group comes
    /// from no such line, the function that allocated it.
    pub largest_retained: Option<TopRow>,
    /// The most recent times that memory ran out.
    pub ooms: Vec<Oom>,
    /// The number of times that memory ran out.
    pub oom_count: u64,
    /// The CUDA driver's reports about the device, by moment; empty if memtrack did not hook the driver.
    pub driver: Vec<DriverMoment>,
    /// The reason why the file has no events, with the call that would record them; `None` if it has events.
    pub recording_was_off: Option<String>,
    /// The reason why allocations have no stacks, with the option that would record them.
    pub missing_stacks: Option<String>,
    /// Whether the file is a recording or was converted from one.
    pub(super) is_recording: bool,
}

/// The number and bytes of some blocks, with their errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BlockTotals {
    /// The number of blocks.
    pub blocks: u64,
    /// The requested bytes of the blocks.
    pub bytes: u64,
    /// Whether the numbers are estimates from samples.
    pub estimated: bool,
    /// The error of the number of blocks.
    pub blocks_error: Estimate,
    /// The error of the bytes.
    pub bytes_error: Estimate,
}

impl BlockTotals {
    /// Raises the numbers to at least those of `net`, which are lower bounds on the true numbers.
    fn raise_to(self, net: Net) -> Self {
        let [blocks, bytes] = [net.blocks, net.bytes].map(|number| u64::try_from(number).unwrap_or(0));
        Self {
            blocks: self.blocks.max(blocks),
            bytes: self.bytes.max(bytes),
            estimated: self.estimated,
            blocks_error: self.blocks_error.at_least(blocks as f64),
            bytes_error: self.bytes_error.at_least(bytes as f64),
        }
    }

    /// Lowers the bytes to at most `most`, which is an upper bound on the true number.
    fn cap_bytes(self, most: f64) -> Self {
        Self {
            bytes: if most.is_finite() { self.bytes.min(most.ceil() as u64) } else { self.bytes },
            bytes_error: self.bytes_error.at_most(most),
            ..self
        }
    }

    /// Returns the totals for a recording that may be incomplete. If `ended` is false, the end of the recording is
    /// missing, and the totals are only lower bounds.
    fn with_completeness(self, ended: bool) -> Self {
        Self {
            blocks_error: self.blocks_error.with_completeness(ended),
            bytes_error: self.bytes_error.with_completeness(ended),
            ..self
        }
    }

    fn of<'a>(lifetimes: impl Iterator<Item = &'a Lifetime>, precision: &Precision) -> Self {
        let (mut blocks, mut bytes, mut estimated) = (0.0, 0u64, false);
        let (mut block_sum, mut byte_sum) = (estimate::Sum::default(), estimate::Sum::default());
        for one in lifetimes {
            blocks += one.blocks;
            bytes = bytes.saturating_add(one.bytes);
            estimated |= one.estimated;
            block_sum.add(1.0, one.blocks);
            byte_sum.add(one.size_bytes as f64, one.blocks);
        }
        let blocks_error = precision.blocks(&block_sum).as_total();
        let bytes_error = precision.bytes(&byte_sum).as_total();
        Self { blocks: blocks.round() as u64, bytes, estimated, blocks_error, bytes_error }
    }
}

/// A moment at which memory ran out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Oom {
    /// The event, as its index in the device's trace.
    pub event: usize,
    /// The time of the event in seconds since [`Self::since`]; `None` if the file does not record it.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted.
    pub since: Since,
    /// The number of bytes that the failed allocation requested.
    pub requested_bytes: u64,
    /// The number of bytes that were free on the device at that moment, if known.
    pub device_free_bytes: Option<u64>,
    /// Blocks that were live at that moment.
    pub live: BlockTotals,
}

impl Oom {
    /// Returns whether the device had at least as many free bytes as any allocator takes for the request: twice the
    /// requested size (because of rounding to a power of two) plus a segment.
    fn device_had_room(&self) -> bool {
        const SEGMENT: u64 = 32 << 20;
        let taken = self.requested_bytes.saturating_mul(2).saturating_add(SEGMENT);
        self.device_free_bytes.is_some_and(|free| free >= taken)
    }
}

impl DeviceSummary {
    /// Returns the bytes and number of blocks that are allocated at the end, and whether they are estimates. For a
    /// heap, whose rounding is unknown, the allocated bytes are the requested bytes.
    pub fn allocated(&self) -> (u64, u64, bool) {
        match self.counted {
            Some(counted) => (counted.bytes, counted.blocks, false),
            None => (self.held.allocated, self.held.blocks, self.held.estimated),
        }
    }

    /// Returns the highest requested bytes; for a sampled heap, a lower bound on them.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.highest.requested_bytes
    }

    /// Returns the error of [`Self::peak_bytes`].
    pub fn peak_error(&self) -> Estimate {
        self.peak.highest.error
    }
}

/// Summarizes a snapshot, device by device.
pub fn summary(snapshot: &Snapshot, symbols: &mut Symbolizer) -> Vec<DeviceSummary> {
    summary_with(snapshot, symbols, &Rules::new())
}

/// Summarizes a snapshot like [`summary`], using `rules` to decide which code is the user's.
pub fn summary_with(snapshot: &Snapshot, symbols: &mut Symbolizer, rules: &Rules) -> Vec<DeviceSummary> {
    let devices = snapshot.devices_by_ordinal().into_iter();
    let all = devices.map(|device| summarize_device(snapshot, symbols, device, rules));
    all.filter(|summary| summary.events > 0 || summary.held.segments > 0).collect()
}

fn summarize_device(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    rules: &Rules,
) -> DeviceSummary {
    let options = TopOptions::new().limit(3).rules(rules.clone());
    let mut peak = AtPeak::find_grouped(snapshot, symbols, device, PeakKind::Requested, By::Line, &options);
    let lifetimes = lifetimes(snapshot, device);
    let is_heap = snapshot.is_heap(device);
    // For a sampled heap, every sum is an estimate even if it includes no samples, because small blocks may be missing.
    let estimated = is_estimate(snapshot, device, &lifetimes);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let most_live = if estimated { peak.live.peak.recorded.high } else { f64::INFINITY };
    let sum = |filter: &dyn Fn(&Lifetime) -> bool| {
        let sum = BlockTotals::of(lifetimes.iter().filter(|lifetime| filter(lifetime)), &precision);
        BlockTotals { estimated: sum.estimated || estimated && sum.blocks > 0, ..sum }
    };
    let complete = snapshot.meta.complete;
    // The bytes live at any moment cannot exceed the peak.
    let live = |filter: &dyn Fn(&Lifetime) -> bool| sum(filter).cap_bytes(most_live);
    let is_retained = |one: &Lifetime| one.from.is_some() && one.to.is_none();
    let held_net = net(snapshot, device).filter(|_| estimated);
    // As in `check`, the recorder's net count (all allocations minus all frees) is a lower bound on the memory that is
    // held.
    let retained = held_net
        .map_or(live(&is_retained), |net| live(&is_retained).raise_to(net))
        .with_completeness(complete);
    let mut largest_retained = {
        let mut sorter = Sorter::new(snapshot, symbols, By::Line, device, &options, &lifetimes);
        for one in lifetimes.iter().filter(|one| is_retained(one)) {
            let place = sorter.find_or_add_row(one);
            sorter.count(place, one);
        }
        // Groups of equal size are sorted by name, as in rankings.
        let known_totals = KnownTotals::live(most_live, &sorter.sum());
        let rows = sorter.rows_by_index(&precision, &known_totals).into_iter();
        rows.min_by(|a, b| b.allocated_bytes.cmp(&a.allocated_bytes).then_with(|| a.name.cmp(&b.name)))
    };
    // Groups without a line in the user's code are named after the function that allocated the memory.
    let mut owners = Owners::new(rules);
    let is_foreign = |row: &&mut TopRow| row.owned.mine.is_none() && !row.stack.is_empty();
    for row in peak.live.rows.iter_mut().chain(&mut largest_retained).filter(is_foreign) {
        row.owned = owners.owner_of(row.stack.iter().map(|line| &line.frame));
    }
    let rows = snapshot.events.rows_of(device);
    let ooms: Vec<usize> = rows.filter(|&row| snapshot.events.action[row] == Action::Oom).collect();
    let oom = |&row: &usize| Oom {
        event: Moment::events_before(snapshot, device, row),
        seconds: snapshot.seconds_at(row),
        since: snapshot.seconds_since(),
        requested_bytes: snapshot.events.size_bytes[row],
        device_free_bytes: snapshot.oom_free_bytes(row),
        live: live(&|one| one.is_live_after(Some(row))),
    };
    let last_ooms = ooms.iter().skip(ooms.len().saturating_sub(MAX_OOMS)).map(oom).collect();
    let dropped = snapshot.devices.iter().find(|row| row.device == device).map_or(0, |row| row.dropped);
    let mut held = HeldMemory::of(snapshot, device);
    held.estimated |= estimated;
    let counts = snapshot.exact_counts(device).filter(|_| is_heap);
    DeviceSummary {
        device: snapshot.ordinal(device),
        device_name: snapshot.device_name(device),
        kind: snapshot.device_kind(device),
        has_reserved_bytes: has_reserved_bytes(snapshot, device),
        has_held_bytes: has_held_bytes(snapshot, device),
        complete,
        counted: counted_at_end(snapshot, device, &lifetimes),
        net: held_net,
        resident_bytes: counts.map(|counts| counts.reserved_bytes).filter(|&bytes| bytes > 0),
        held,
        private_pools: HeldMemory::of_private_pools(snapshot, device),
        peak,
        reserved_peak: ReservedPeak::of(snapshot, device),
        events: Moment::events(snapshot, device) as u64,
        dropped,
        live: live(&|one| one.to.is_none()).with_completeness(complete),
        folded_scopes: snapshot.scope_sums.as_ref().map_or(0, |sums| sums.folded),
        folded: snapshot.folded,
        earlier_parts: snapshot.meta.earlier_parts,
        older: sum(&|one| one.from.is_none()),
        frees_without_allocation: lifetimes.iter().filter(|one| !one.known).count() as u64,
        retained,
        outside_segments: contradictions::count_outside_segments(snapshot, device, &lifetimes),
        largest_retained,
        ooms: last_ooms,
        oom_count: ooms.len() as u64,
        driver: driver_moments::driver_moments(snapshot, device),
        recording_was_off: recording_was_off(snapshot),
        missing_stacks: missing_stacks(snapshot, device),
        is_recording: snapshot.seconds_since() == Since::Start,
    }
}
