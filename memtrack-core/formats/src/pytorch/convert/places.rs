//! The places of sampled blocks in a PyTorch file. There a sampled block has the bytes that it represents, and would
//! overlap its neighbours at its own address, so it gets a place above all memory of the heap. Blocks that were not
//! sampled keep their addresses.

use foldhash::fast::FixedState;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags};
use memtrack_model::snapshot::{LiveBlock, Snapshot, WeighedBlock};
use std::collections::{HashMap, VecDeque};

/// Places are a multiple of this many bytes.
const UNIT: u64 = 512;
/// The highest address: no memory is above it, and no block is placed there.
const MAX_ADDRESS: u64 = 1 << 62;

/// The places of one device's blocks while its events are visited in order.
pub(super) struct Places {
    /// The bytes of a place: the most that a sampled block represents.
    place_bytes: u64,
    /// The first place that was never used.
    next: u64,
    free: Vec<u64>,
    /// The live blocks that the trace allocated, by their own addresses.
    open: HashMap<u64, Open, FixedState>,
    /// Places of blocks for which the trace has only the free, in order.
    freed_only: VecDeque<u64>,
    /// Places of blocks that are live at the end but not in the trace, by their own addresses.
    not_in_trace: HashMap<u64, u64, FixedState>,
}

/// A live block.
#[derive(Clone, Copy)]
struct Open {
    event: Event,
    /// Its place; none where it keeps its address.
    place: Option<u64>,
}

impl Places {
    /// Creates the places for the blocks of `device`; none where no block of it was sampled.
    pub(super) fn of(from: &Snapshot, device: DeviceId) -> Option<Self> {
        let is_sampled = |flags: EventFlags| flags.contains(EventFlags::SAMPLED);
        let (mut highest, mut most, mut sampled) = (0, 0, false);
        let mut see = |address: u64, size_bytes: u64, flags: EventFlags| {
            let end = address.saturating_add(size_bytes);
            highest = if end <= MAX_ADDRESS { end.max(highest) } else { highest };
            if is_sampled(flags) {
                sampled = true;
                most = WeighedBlock::of(size_bytes, flags, &from.meta).bytes.max(most);
            }
        };
        for row in from.events.rows_of(device) {
            let events = &from.events;
            if events.action[row] != Action::Oom {
                see(events.address[row], events.size_bytes[row], events.flags[row]);
            }
        }
        for block in from.blocks.iter().filter(|block| block.device == device) {
            see(block.address, block.size_bytes, block.flags);
        }
        for segment in from.segments.iter().filter(|segment| segment.device == device) {
            see(segment.address, segment.size_bytes, EventFlags::default());
        }
        if !sampled {
            return None;
        }
        let mut places = Self {
            place_bytes: most.clamp(1, MAX_ADDRESS).next_multiple_of(UNIT),
            next: highest.next_multiple_of(1 << 20),
            free: Vec::new(),
            open: HashMap::default(),
            freed_only: VecDeque::new(),
            not_in_trace: HashMap::default(),
        };
        places.before_the_trace(from, device);
        Some(places)
    }

    /// Assigns places to the blocks that were live before the first event: no other block may be placed there
    /// meanwhile.
    fn before_the_trace(&mut self, from: &Snapshot, device: DeviceId) {
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
                    let place = self.take();
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
            let place = self.take();
            self.not_in_trace.insert(block.address, place);
        }
    }

    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            let place = self.next;
            self.next = place.saturating_add(self.place_bytes);
            place
        })
    }

    /// Returns the block that an allocation finds at its address, where one of the two was sampled: its free was not
    /// recorded, and without one it would stay in the file for ever.
    pub(super) fn unfreed_at(&mut self, alloc: &Event) -> Option<Event> {
        let before = self.open.get(&alloc.address)?;
        let is_sampled = alloc.flags.contains(EventFlags::SAMPLED);
        (is_sampled || before.place.is_some()).then_some(before.event)
    }

    /// Returns the address of an event's block in the file. Has to be called for each event, in order.
    pub(super) fn place(&mut self, event: &Event) -> u64 {
        let is_sampled = event.flags.contains(EventFlags::SAMPLED);
        let address = event.address;
        match event.action {
            Action::Alloc => {
                let place = is_sampled.then(|| self.take());
                self.open.insert(address, Open { event: *event, place });
                place.unwrap_or(address)
            }
            Action::Free | Action::FreeCompleted => {
                let place = match self.open.remove(&address) {
                    Some(open) => open.place,
                    None if is_sampled => self.freed_only.pop_front(),
                    None => None,
                };
                self.free.extend(place);
                place.unwrap_or(address)
            }
            Action::FreeRequested | Action::Annotate => {
                self.open.get(&address).and_then(|open| open.place).unwrap_or(address)
            }
            _ => address,
        }
    }

    /// Returns a block that is live after all events, as the trace describes it, with its address in the file.
    pub(super) fn live(&self, block: &LiveBlock) -> LiveBlock {
        let recorded = block.address;
        let Some(Open { event, place }) = self.open.get(&recorded) else {
            let address = self.not_in_trace.get(&recorded).copied().unwrap_or(recorded);
            return LiveBlock { address, ..*block };
        };
        // If the trace contains another block there, reports count that one.
        let (size_bytes, flags) = (event.size_bytes, event.flags);
        LiveBlock { address: place.unwrap_or(recorded), size_bytes, flags, ..*block }
    }
}
