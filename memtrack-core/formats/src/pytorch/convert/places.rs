//! Assigns places, which are unused address ranges, to sampled blocks in a PyTorch file. In such a file, a sampled
//! block has the total size of the blocks that it represents and would overlap its neighbours at its real address, so
//! it is placed above all memory of the heap. Blocks that were not sampled keep their addresses.

use foldhash::fast::FixedState;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags};
use memtrack_model::snapshot::{LiveBlock, Snapshot, WeighedBlock};
use std::collections::{HashMap, VecDeque};

/// The size of a place is a multiple of this many bytes.
const PLACE_UNIT_BYTES: u64 = 512;
/// The highest address. Memory above it is ignored, and no block is placed there.
const MAX_ADDRESS: u64 = 1 << 62;

/// The places of a device's blocks while the device's events are visited in order.
pub(super) struct Places {
    /// The size of a place, which is the maximum number of bytes that a sampled block represents.
    place_bytes: u64,
    /// The address of the first place that has never been used.
    next: u64,
    free: Vec<u64>,
    /// The live blocks whose allocation is in the trace, keyed by their recorded addresses.
    live: HashMap<u64, PlacedBlock, FixedState>,
    /// The places of blocks for which only the free is in the trace, in the order of the frees.
    freed_only: VecDeque<u64>,
    /// The places of blocks that are live at the end but not in the trace, keyed by their recorded addresses.
    not_in_trace: HashMap<u64, u64, FixedState>,
}

/// A live block.
#[derive(Clone, Copy)]
struct PlacedBlock {
    /// The block's allocation.
    event: Event,
    /// The block's place, or `None` if the block keeps its address.
    place: Option<u64>,
}

impl Places {
    /// Creates the places for the blocks on `device`, or returns `None` if none of them was sampled.
    pub(super) fn of(from: &Snapshot, device: DeviceId) -> Option<Self> {
        let is_sampled = |flags: EventFlags| flags.contains(EventFlags::SAMPLED);
        let (mut highest, mut largest, mut sampled) = (0, 0, false);
        let mut include = |address: u64, size_bytes: u64, flags: EventFlags| {
            let end = address.saturating_add(size_bytes);
            highest = if end <= MAX_ADDRESS { end.max(highest) } else { highest };
            if is_sampled(flags) {
                sampled = true;
                largest = WeighedBlock::of(size_bytes, flags, &from.meta).bytes.max(largest);
            }
        };
        for row in from.events.rows_of(device) {
            let events = &from.events;
            if events.action[row] != Action::Oom {
                include(events.address[row], events.size_bytes[row], events.flags[row]);
            }
        }
        for block in from.blocks.iter().filter(|block| block.device == device) {
            include(block.address, block.size_bytes, block.flags);
        }
        for segment in from.segments.iter().filter(|segment| segment.device == device) {
            include(segment.address, segment.size_bytes, EventFlags::default());
        }
        if !sampled {
            return None;
        }
        let mut places = Self {
            place_bytes: largest.clamp(1, MAX_ADDRESS).next_multiple_of(PLACE_UNIT_BYTES),
            next: highest.next_multiple_of(1 << 20),
            free: Vec::new(),
            live: HashMap::default(),
            freed_only: VecDeque::new(),
            not_in_trace: HashMap::default(),
        };
        places.place_older_blocks(from, device);
        Some(places)
    }

    /// Assigns places to the blocks that were already live before the first event, so that no other block is placed
    /// there during their lifetime.
    fn place_older_blocks(&mut self, from: &Snapshot, device: DeviceId) {
        let mut open: HashMap<u64, (), FixedState> = HashMap::default();
        for row in from.events.rows_of(device) {
            let address = from.events.address[row];
            match from.events.action[row] {
                Action::Alloc => {
                    open.insert(address, ());
                }
                Action::Free | Action::FreeCompleted
                    if open.remove(&address).is_none()
                        && from.events.flags[row].contains(EventFlags::SAMPLED) =>
                {
                    let place = self.find_unused_place();
                    self.freed_only.push_back(place);
                }
                _ => {}
            }
        }
        let older = from.blocks.iter().filter(|block| {
            let is_sampled = block.flags.contains(EventFlags::SAMPLED);
            block.device == device && is_sampled && !open.contains_key(&block.address)
        });
        for block in older {
            let place = self.find_unused_place();
            self.not_in_trace.insert(block.address, place);
        }
    }

    /// Returns a place that is not in use.
    fn find_unused_place(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            let place = self.next;
            self.next = place.saturating_add(self.place_bytes);
            place
        })
    }

    /// Returns the allocation of a block that is still live at the address of a new allocation, if one of the two
    /// blocks was sampled. The older block's free was not recorded, so the caller must add one; otherwise the block
    /// would stay live in the file.
    pub(super) fn take_live_alloc_at(&mut self, alloc: &Event) -> Option<Event> {
        let before = self.live.get(&alloc.address)?;
        let is_sampled = alloc.flags.contains(EventFlags::SAMPLED);
        (is_sampled || before.place.is_some()).then_some(before.event)
    }

    /// Returns the address that an event's block has in the file. Must be called for all events in order.
    pub(super) fn address_of(&mut self, event: &Event) -> u64 {
        let is_sampled = event.flags.contains(EventFlags::SAMPLED);
        let address = event.address;
        match event.action {
            Action::Alloc => {
                let place = is_sampled.then(|| self.find_unused_place());
                self.live.insert(address, PlacedBlock { event: *event, place });
                place.unwrap_or(address)
            }
            Action::Free | Action::FreeCompleted => {
                let place = match self.live.remove(&address) {
                    Some(block) => block.place,
                    None if is_sampled => self.freed_only.pop_front(),
                    None => None,
                };
                self.free.extend(place);
                place.unwrap_or(address)
            }
            Action::FreeRequested | Action::Annotate => {
                self.live.get(&address).and_then(|block| block.place).unwrap_or(address)
            }
            _ => address,
        }
    }

    /// Returns a block that is live after all events, as the trace describes it and with its address in the file.
    pub(super) fn to_live_block(&self, block: &LiveBlock) -> LiveBlock {
        let recorded = block.address;
        let Some(PlacedBlock { event, place }) = self.live.get(&recorded) else {
            let address = self.not_in_trace.get(&recorded).copied().unwrap_or(recorded);
            return LiveBlock { address, ..*block };
        };
        // Use the size and flags from the trace, even if the trace contains a different block at this address, because
        // reports count that block.
        let (size_bytes, flags) = (event.size_bytes, event.flags);
        LiveBlock { address: place.unwrap_or(recorded), size_bytes, flags, ..*block }
    }
}
