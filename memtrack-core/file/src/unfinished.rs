//! Computes the state at the end from the events alone: the live blocks and segments, and the counts per device. The
//! reader uses this for a recording whose program could not write the state at its end.

use memtrack_model::event::{Action, DeviceId, Event, EventFlags};
use memtrack_model::snapshot::{DeviceStatistics, EventTable, LiveBlock, Segment};
use std::collections::{BTreeMap, HashMap};

/// The live blocks and segments after the events that were applied so far. Each mapping into an expandable segment counts
/// as a segment.
#[derive(Debug, Default)]
pub struct LiveState {
    blocks: HashMap<(DeviceId, u64), LiveBlock, foldhash::fast::RandomState>,
    segments: HashMap<(DeviceId, u64), Segment, foldhash::fast::RandomState>,
}

impl LiveState {
    /// Returns the live block at an address.
    pub fn block(&self, device: DeviceId, address: u64) -> Option<&LiveBlock> {
        self.blocks.get(&(device, address))
    }

    /// Applies an event of the recorder. The events of an address must be applied in order.
    pub fn apply(&mut self, event: &Event) {
        let place = (event.device, event.address);
        match event.action {
            Action::Alloc => {
                self.blocks.insert(place, LiveBlock::of_recorded(event));
            }
            Action::FreeRequested => {
                if let Some(block) = self.blocks.get_mut(&place) {
                    block.pending_free = true;
                }
            }
            Action::Free | Action::FreeCompleted => {
                self.blocks.remove(&place);
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                self.segments.insert(place, Segment::of_allocation(event));
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.segments.remove(&place);
            }
            Action::Oom | Action::Snapshot | Action::Annotate | Action::Other => {}
        }
    }

    /// Returns the blocks and segments, sorted by device and address.
    pub fn sorted(&self) -> (Vec<LiveBlock>, Vec<Segment>) {
        let mut blocks: Vec<_> = self.blocks.values().copied().collect();
        blocks.sort_unstable_by_key(|block| (block.device, block.address));
        let mut segments: Vec<_> = self.segments.values().copied().collect();
        segments.sort_unstable_by_key(|segment| (segment.device, segment.address));
        (blocks, segments)
    }
}

/// Returns the blocks and segments that were allocated and not freed, sorted by device and address.
pub fn find_live(events: &EventTable) -> (Vec<LiveBlock>, Vec<Segment>) {
    let mut live = LiveState::default();
    (0..events.len()).for_each(|row| live.apply(&events.get_recorded(row)));
    live.sorted()
}

/// The counts per device over the events that were added. A sampled block that represents others counts once.
#[derive(Debug, Default)]
pub struct EventCounts(BTreeMap<DeviceId, DeviceStatistics>);

impl EventCounts {
    /// Creates the counts that continue these rows.
    pub fn from_rows(rows: &[DeviceStatistics]) -> Self {
        Self(rows.iter().map(|counts| (counts.device, *counts)).collect())
    }

    /// Returns the counts over all events of a table.
    pub fn of(events: &EventTable) -> Self {
        let mut counts = Self::default();
        events.iter().for_each(|event| counts.add(&event));
        counts
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        let counts = self.0.entry(event.device).or_insert(DeviceStatistics::of(event.device));
        counts.recorded += 1;
        match event.action {
            Action::Alloc => {
                counts.allocations += 1;
                counts.allocated_bytes = counts.allocated_bytes.saturating_add(event.size_bytes);
            }
            Action::Free | Action::FreeRequested if !event.flags.contains(EventFlags::UNKNOWN_BLOCK) => {
                counts.frees += 1;
                counts.freed_bytes = counts.freed_bytes.saturating_add(event.size_bytes);
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                counts.reserved_bytes = counts.reserved_bytes.saturating_add(event.size_bytes);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                counts.reserved_bytes = counts.reserved_bytes.saturating_sub(event.size_bytes);
            }
            _ => {}
        }
    }

    /// Returns the counts, sorted by device.
    pub fn rows(&self) -> Vec<DeviceStatistics> {
        self.0.values().copied().collect()
    }
}
