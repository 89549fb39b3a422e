//! Computes the state at the end from the events alone: the live blocks and segments, and the counts per device. The
//! reader uses this for a recording whose program could not write the state at its end.

use memtrack_model::event::{Action, DeviceId, Event, EventFlags};
use memtrack_model::snapshot::{DeviceStatistics, EventTable, LiveBlock, Segment};
use std::collections::HashMap;
use std::hash::BuildHasher;

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

    /// Applies an event. The events of an address must be applied in order.
    pub fn apply(&mut self, event: &Event) {
        let place = (event.device, event.address);
        match event.action {
            Action::Alloc => {
                self.blocks.insert(place, block_of(event));
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
                self.segments.insert(place, segment_of(event));
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
    events.iter().for_each(|event| live.apply(&event));
    live.sorted()
}

/// Returns the block that an event allocated.
fn block_of(event: &Event) -> LiveBlock {
    LiveBlock {
        device: event.device,
        address: event.address,
        size_bytes: event.size_bytes,
        stream: event.stream,
        stack: event.stack,
        scope: event.scope,
        ticks: event.ticks,
        flags: event.flags,
        pending_free: false,
    }
}

/// Returns the segment that an event allocated or mapped.
fn segment_of(event: &Event) -> Segment {
    Segment {
        device: event.device,
        address: event.address,
        size_bytes: event.size_bytes,
        stream: event.stream,
        stack: event.stack,
        ticks: event.ticks,
        is_expandable: event.action == Action::SegmentMap,
    }
}

/// Counts the events per device. A sampled block that represents others counts once.
pub fn count_events(events: &EventTable) -> Vec<DeviceStatistics> {
    let mut devices = HashMap::new();
    events.iter().for_each(|event| count_event(&mut devices, &event));
    let mut devices: Vec<_> = devices.into_values().collect();
    devices.sort_by_key(|counts| counts.device);
    devices
}

/// Counts one more event.
pub fn count_event<S: BuildHasher>(devices: &mut HashMap<DeviceId, DeviceStatistics, S>, event: &Event) {
    let counts = devices.entry(event.device).or_insert(DeviceStatistics::of(event.device));
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
