//! One page about a snapshot: what each device holds, its peak, its fragmentation, what the trace has lost, and the
//! three things to look at first. `memtrack summary` prints it; `text` has the words, `json` the numbers.

mod contradictions;
mod driver;
mod json;
mod text;

use super::held::Held;
use super::highest::{Highest, HighestOf};
use super::lifetimes::{Lifetime, lifetimes};
use super::reserved::ReservedPeak;
use super::top::StackLine;
use super::top::stacks::named;
use crate::event::{Action, DeviceId, StackId};
use crate::snapshot::Snapshot;
use crate::stack::symbols::Symbolizer;
pub use driver::DriverMoment;
#[cfg(feature = "cuda")]
pub(crate) use driver::parts;
use std::collections::BTreeMap;

/// Most `oom` events that are told one by one.
const MOST_OOMS: usize = 5;

/// What a device comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSummary {
    /// The device's ordinal in reports.
    pub device: u16,
    /// What it is called: `device 0`, `host heap` or `pinned host memory`.
    pub device_name: String,
    /// Whether it is the host heap.
    pub is_host: bool,
    /// Whether it is pinned host memory.
    pub is_pinned: bool,
    /// What it holds at the end.
    pub held: Held,
    /// Its highest point of allocated bytes, with the largest groups.
    pub peak: Highest,
    /// The most bytes that were reserved.
    pub reserved_peak: ReservedPeak,
    /// Events in its trace.
    pub events: u64,
    /// Events that the recorder dropped, where it says so.
    pub dropped: u64,
    /// Parts of the recording that they were in, where it was written in parts of which the oldest are gone.
    pub earlier_parts: u64,
    /// Blocks that were live before the trace begins, and their bytes.
    pub older: (u64, u64),
    /// Of those, blocks whose free is in the trace: their allocation was lost, or came before recording.
    pub frees_without_allocation: u64,
    /// Bytes that were allocated within the trace and are live at its end, and their blocks.
    pub kept: (u64, u64),
    /// Of those, blocks that no segment holds, and their bytes: the trace and the segments are not of one moment.
    pub unheld: (u64, u64),
    /// The stack that most of those bytes are from, as named, and its bytes.
    pub largest_kept: Option<(Vec<StackLine>, u64)>,
    /// When memory ran out, the last times.
    pub ooms: Vec<Oom>,
    /// How often memory ran out.
    pub oom_count: u64,
    /// What the CUDA driver said of the device, by moment; nothing where it was not hooked.
    pub driver: Vec<DriverMoment>,
}

/// Memory ran out.
#[derive(Clone, Debug, PartialEq)]
pub struct Oom {
    /// The event's number in the device's trace.
    pub event: usize,
    /// Seconds from the first event of the snapshot.
    pub seconds: f64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Free bytes of the device.
    pub device_free_bytes: u64,
    /// Bytes live then.
    pub live_bytes: u64,
    /// Blocks live then.
    pub live_blocks: u64,
}

/// Sums a snapshot in PyTorch's form up, device by device.
pub fn summary(snapshot: &Snapshot, symbols: &mut Symbolizer) -> Vec<DeviceSummary> {
    let devices = snapshot.device_ids().into_iter();
    let all = devices.map(|device| summary_of(snapshot, symbols, device));
    all.filter(|summary| summary.events > 0 || summary.held.segments > 0).collect()
}

fn summary_of(snapshot: &Snapshot, symbols: &mut Symbolizer, device: DeviceId) -> DeviceSummary {
    let peak = Highest::find(snapshot, symbols, device, HighestOf::Allocated, 3);
    let lifetimes = lifetimes(snapshot, device);
    let sum = |filter: &dyn Fn(&Lifetime) -> bool| {
        let chosen = lifetimes.iter().filter(|lifetime| filter(lifetime));
        chosen.fold((0, 0u64), |(blocks, bytes), one| (blocks + 1, bytes.saturating_add(one.bytes)))
    };
    let is_kept = |one: &Lifetime| one.from.is_some() && one.to.is_none();
    let kept = sum(&is_kept);
    let mut by_stack: BTreeMap<StackId, u64> = BTreeMap::new();
    for one in lifetimes.iter().filter(|one| is_kept(one)) {
        let bytes = by_stack.entry(one.stack).or_default();
        *bytes = bytes.saturating_add(one.bytes);
    }
    let largest_kept = by_stack.into_iter().max_by_key(|&(_, bytes)| bytes);
    let largest_kept = largest_kept.map(|(stack, bytes)| (named(snapshot, stack, symbols), bytes));
    let rows = || snapshot.events.rows_of(device);
    let ooms: Vec<(usize, usize)> =
        rows().enumerate().filter(|&(_, row)| snapshot.events.action[row] == Action::Oom).collect();
    let oom = |&(event, row): &(usize, usize)| {
        let (live_blocks, live_bytes) = sum(&|one| one.is_live_after(Some(row)));
        Oom {
            event,
            seconds: snapshot.clock.seconds_since_start(snapshot.events.ticks[row]),
            requested_bytes: snapshot.events.size_bytes[row],
            device_free_bytes: snapshot.events.address[row],
            live_bytes,
            live_blocks,
        }
    };
    let last_ooms = ooms.iter().skip(ooms.len().saturating_sub(MOST_OOMS)).map(oom).collect();
    let dropped = snapshot.devices.iter().find(|row| row.device == device).map_or(0, |row| row.dropped);
    DeviceSummary {
        device: snapshot.ordinal(device),
        device_name: snapshot.device_name(device),
        is_host: snapshot.is_heap(device),
        is_pinned: snapshot.is_pinned(device),
        held: Held::of(snapshot, device),
        peak,
        reserved_peak: ReservedPeak::of(snapshot, device),
        events: rows().count() as u64,
        dropped,
        earlier_parts: snapshot.meta.earlier_parts,
        older: sum(&|one| one.from.is_none()),
        frees_without_allocation: sum(&|one| !one.known).0,
        kept: (kept.1, kept.0),
        unheld: contradictions::unheld(snapshot, device, &lifetimes),
        largest_kept,
        ooms: last_ooms,
        oom_count: ooms.len() as u64,
        driver: driver::moments(snapshot, device),
    }
}
