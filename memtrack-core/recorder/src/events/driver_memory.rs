//! The CUDA driver's allocations, as observed by the hook of the driver's functions. Each allocation is a segment and,
//! until a pool reports blocks inside it, also the segment's only block. This table stores the data that a free call
//! lacks (device, size, context); the functions below record the events of an allocation and of its free.

use super::hooks::free_event;
use super::live::LiveEntry;
use super::segments::HeldSegment;
use super::threads::slot_of;
use super::{HookContext, Recorder};
use crate::probes;
use crate::scope;
use crate::settings;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, StackId, StreamId};
use memtrack_model::snapshot::Segment;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;

/// The kind of a driver allocation, which determines how long the memory can live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Memory of the context that was current: plain, managed and pinned memory, arrays.
    Context,
    /// Memory from a pool of the device, which outlives contexts.
    Pool,
    /// Physical memory mapped into part of a reserved range of addresses. More memory may be mapped into the range
    /// later.
    Mapping,
    /// Physical memory mapped into all of a reserved range of addresses.
    WholeRange,
}

impl Origin {
    fn is_mapping(self) -> bool {
        matches!(self, Self::Mapping | Self::WholeRange)
    }
}

/// An allocation by the driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverAllocation {
    /// The device; pinned host memory counts as a separate device.
    pub device: DeviceId,
    /// The ordinal of the device whose context was current; equal to `device` except for pinned memory.
    pub of_device: u16,
    /// The context that the memory belongs to; 0 if it belongs to none.
    pub context: u64,
    /// The stream on which the memory was requested.
    pub stream: StreamId,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The kind of call that allocated the memory.
    pub origin: Origin,
}

/// The destruction of a context, which ends allocations.
#[derive(Clone, Copy, Debug)]
pub enum Teardown {
    /// A context was destroyed: all its allocations end.
    Context(u64),
    /// A device's primary context was reset or destroyed: all allocations of the device end, except those of other
    /// contexts.
    Primary {
        /// The device whose primary context ended.
        device: u16,
        /// The device's primary context, if it is known.
        context: Option<u64>,
    },
}

type Allocations = HashMap<u64, DriverAllocation, foldhash::fast::FixedState>;

/// The driver's allocations by address (arrays: by handle). Addresses are unique across devices and the host.
pub struct DriverTable {
    shards: [Mutex<Allocations>; SHARDS],
    /// The sizes of mappings by address. One unmap call may end several mappings.
    mappings: Mutex<BTreeMap<u64, u64>>,
    /// The number of allocations that did not fit, and their bytes.
    omitted: [AtomicU64; 2],
}

/// The size of a bucket of a shard's table, in bytes. Some buckets always stay empty.
const ALLOCATION_BYTES: usize = size_of::<(u64, DriverAllocation)>() + 1;
/// The maximum memory per mapping: nodes of the map are at least half full.
const MAPPING_BYTES: usize = 2 * size_of::<(u64, u64)>();

/// Returns the maximum memory of the tables for this number of allocations, in bytes.
#[cfg(test)]
pub(super) fn max_bytes(allocations: usize) -> usize {
    // An eighth of a shard stays empty, and its capacity may just have doubled.
    allocations * (ALLOCATION_BYTES * 16 / 7 + MAPPING_BYTES)
}

impl Default for DriverTable {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, mappings: Mutex::default(), omitted: Default::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DriverTable {
    fn shard(&self, address: u64) -> MutexGuard<'_, Allocations> {
        // Addresses are multiples of at least 256, and neighbouring addresses mostly belong to the same thread.
        let mixed = (address >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lock(&self.shards[(mixed >> 58) as usize])
    }

    fn insert(&self, address: u64, allocation: DriverAllocation) {
        if allocation.origin.is_mapping() {
            lock(&self.mappings).insert(address, allocation.size_bytes);
        }
        self.shard(address).insert(address, allocation);
    }

    fn remove(&self, address: u64) -> Option<DriverAllocation> {
        let removed = self.shard(address).remove(&address);
        if removed.is_some_and(|allocation| allocation.origin.is_mapping()) {
            lock(&self.mappings).remove(&address);
        }
        removed
    }

    /// Counts an allocation of `size_bytes` that does not fit.
    #[cold]
    fn count_omitted(&self, size_bytes: u64) {
        self.omitted[0].fetch_add(1, Ordering::Relaxed);
        self.omitted[1].fetch_add(size_bytes, Ordering::Relaxed);
        {
            use crate::shared_memory::{Counter, count};
            count(Counter::OmittedDriverAllocations, 1);
            count(Counter::OmittedDriverBytes, size_bytes);
        }
    }

    /// Returns the number of allocations that did not fit, and their bytes.
    pub(super) fn omitted(&self) -> [u64; 2] {
        self.omitted.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the approximate memory of the tables, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let room: usize = self.shards.iter().map(|shard| lock(shard).capacity()).sum();
        room * ALLOCATION_BYTES + lock(&self.mappings).len() * MAPPING_BYTES
    }

    /// Returns the addresses of the mappings that begin within `addresses`.
    pub fn mappings_within(&self, addresses: Range<u64>) -> Vec<u64> {
        lock(&self.mappings).range(addresses).map(|(&address, _)| address).collect()
    }

    /// Returns the addresses of the allocations that `teardown` ends.
    pub fn ended_by(&self, teardown: Teardown) -> Vec<u64> {
        let ends = |allocation: &DriverAllocation| match teardown {
            Teardown::Context(context) => {
                allocation.origin == Origin::Context && allocation.context == context
            }
            Teardown::Primary { device, context } => {
                allocation.of_device == device
                    && match allocation.origin {
                        Origin::Context => context.is_none_or(|context| allocation.context == context),
                        Origin::Pool => true,
                        Origin::Mapping | Origin::WholeRange => false,
                    }
            }
        };
        let ended_in_shard = |shard: &Mutex<Allocations>| -> Vec<u64> {
            lock(shard)
                .iter()
                .filter(|(_, allocation)| ends(allocation))
                .map(|(&address, _)| address)
                .collect()
        };
        self.shards.iter().flat_map(ended_in_shard).collect()
    }

    /// Removes all allocations.
    pub(super) fn clear(&self) {
        self.shards.iter().for_each(|shard| lock(shard).clear());
        lock(&self.mappings).clear();
        self.omitted.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// A free by the driver that is in progress: it has stamps, and the tables no longer contain the memory, but its events
/// have not been written yet.
pub struct DriverFreed {
    address: u64,
    allocation: DriverAllocation,
    stamps: [u64; 2],
    held: Option<HeldSegment>,
    block: Option<LiveEntry>,
    stack: StackId,
}

impl HookContext {
    /// Records an allocation of the driver. Returns its stamp; 0 if the device is not recorded or there is no room.
    pub fn driver_alloc(self, address: u64, allocation: DriverAllocation) -> u64 {
        self.with_room(move || {
            let DriverAllocation { device, stream, size_bytes, origin, .. } = allocation;
            let Some(slot) = slot_of(device) else {
                self.recorder.note_omitted_device(device);
                return 0;
            };
            let stack = self.stack(settings::blocks_have_stacks());
            let scope = scope::current_id();
            let flags = EventFlags::WHOLE_SEGMENT;
            let block = LiveEntry { ticks: 0, size_bytes, stream, stack, scope, flags, pending_free: false };
            let newest = &self.thread.local().newest_ticks;
            let place = match self.recorder.segments.is_full() {
                true => None,
                false => self.recorder.live.insert_segment(device, address, block, newest),
            };
            let Some(([segment_ticks, ticks], replaced)) = place else {
                // The free will not contain the size and the device, so it could not be recorded.
                self.recorder.driver.count_omitted(size_bytes);
                return 0;
            };
            self.recorder.driver.insert(address, allocation);
            let is_expandable = origin == Origin::Mapping;
            let segment =
                Segment { device, address, size_bytes, stream, stack, ticks: segment_ticks, is_expandable };
            let older = replaced.and_then(|_| self.recorder.segments.remove_from_driver(device, address));
            self.recorder.segments.insert_from_driver(segment);
            let totals = self.thread.state.totals(slot);
            if let Some(old) = replaced {
                // The old memory must have been freed, since its address was allocated again.
                if old.flags.contains(EventFlags::WHOLE_SEGMENT) {
                    probes::freeing_if_watched(device, address);
                }
                self.count_end(
                    slot,
                    free_event(device, address, segment_ticks - 1, &old, StackId::NONE),
                    &old,
                );
            }
            if let Some(older) = older {
                totals.count_segment_free(older.segment.size_bytes);
            }
            totals.count_segment(size_bytes);
            totals.count_alloc(size_bytes);
            self.thread.state.mark_device_used(slot);
            let stack = if settings::allocations_have_stacks() { stack } else { StackId::NONE };
            let action = if is_expandable { Action::SegmentMap } else { Action::SegmentAlloc };
            let thread = self.thread.thread_id();
            let event = Event {
                ticks: segment_ticks,
                address,
                size_bytes,
                stream,
                stack,
                scope,
                thread,
                device,
                action,
                flags: EventFlags::default(),
            };
            self.event(slot, event);
            self.event(slot, Event { ticks, action: Action::Alloc, flags, ..event });
            ticks
        })
    }

    /// Records that the driver is about to free memory. Returns the argument for [`Self::driver_freed`] or
    /// [`Self::driver_not_freed`]; `None` if the memory is unknown.
    pub fn driver_free(self, address: u64) -> Option<DriverFreed> {
        self.with_room(move || {
            let recorder: &Recorder = self.recorder;
            let allocation = recorder.driver.remove(address)?;
            let device = allocation.device;
            let stack = self.stack(settings::frees_have_separate_stacks());
            let newest = &self.thread.local().newest_ticks;
            let held = recorder.segments.remove_from_driver(device, address);
            let is_block = held.is_some_and(|held| held.is_block);
            let (stamps, block) = recorder.live.remove_segment(device, address, is_block, newest);
            if block.is_some() {
                probes::freeing_if_watched(device, address);
            }
            Some(DriverFreed { address, allocation, stamps, held, block, stack })
        })
    }

    /// Completes the record of a free by the driver.
    pub fn driver_freed(self, freed: DriverFreed) {
        self.with_room(move || {
            let DriverFreed { address, allocation, stamps, held, block, stack } = freed;
            let device = allocation.device;
            let Some(slot) = slot_of(device) else { return };
            // If the segment is not in the table, a pool has already reported that it was freed.
            let Some(held) = held else { return };
            let totals = self.thread.state.totals(slot);
            totals.count_segment_free(allocation.size_bytes);
            let mut end = free_event(device, address, stamps[1], &entry_of(&held), stack);
            end.action =
                if allocation.origin == Origin::Mapping { Action::SegmentUnmap } else { Action::SegmentFree };
            if let Some(block) = block {
                self.count_end(slot, free_event(device, address, stamps[0], &block, stack), &block);
            } else {
                self.end_blocks_within(&held.segment);
                end.ticks = self
                    .recorder
                    .live
                    .remove_segment(device, address, false, &self.thread.local().newest_ticks)
                    .0[1];
            }
            self.event(slot, end);
        })
    }

    /// Records frees for the blocks that a pool reported inside a segment but never freed.
    #[cold]
    fn end_blocks_within(self, segment: &Segment) {
        let Segment { device, address, size_bytes, .. } = *segment;
        for block in self.recorder.live.addresses_in(device, address..address.saturating_add(size_bytes)) {
            let freed = self.begin_free(device, block);
            if freed.is_known() {
                self.finish_free(freed, 0, segment.stream, false);
            }
        }
    }

    /// Restores memory whose free by the driver failed.
    #[cold]
    pub fn driver_not_freed(self, freed: DriverFreed) {
        let DriverFreed { address, allocation, held, block, .. } = freed;
        self.recorder.driver.insert(address, allocation);
        if let Some(held) = held {
            self.recorder.segments.restore(held);
        }
        if let Some(block) = block {
            self.recorder.live.restore(allocation.device, address, block);
            self.fire_restored(allocation.device, address, &block);
        }
    }
}

impl DriverFreed {
    /// Returns whether blocks that a pool has reported inside the segment are freed with it.
    pub fn ends_others(&self) -> bool {
        self.held.is_some() && self.block.is_none()
    }

    /// Returns the device, and the stamp of the free.
    pub fn moment(&self) -> (DeviceId, u64) {
        (self.allocation.device, self.stamps[1])
    }
}

/// Returns a segment as the entry that [`free_event`] takes.
fn entry_of(held: &HeldSegment) -> LiveEntry {
    let Segment { size_bytes, stream, stack, ticks, .. } = held.segment;
    let (scope, flags) = (scope::current_id(), EventFlags::default());
    LiveEntry { ticks, size_bytes, stream, stack, scope, flags, pending_free: false }
}
