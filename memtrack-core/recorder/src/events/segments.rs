//! The segments that exist. A segment reported by the driver's hook also counts as a block, until a pool reports blocks
//! inside it: from then on the pool's blocks are the allocations, and the segment contains them.

use super::threads::slot_of;
use super::{HookContext, scope_sums};
use crate::probes;
use crate::settings;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags};
use memtrack_model::snapshot::Segment;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A segment, and whether the driver's hook or a pool reported it.
#[derive(Clone, Copy)]
pub(super) struct HeldSegment {
    pub(super) segment: Segment,
    /// Whether the driver's hook reported the segment.
    pub(super) from_driver: bool,
    /// Whether the segment also counts as a block.
    pub(super) is_block: bool,
}

/// The table has room for one segment per this many blocks that can be tracked.
const BLOCKS_PER_SEGMENT: u64 = 8;

/// Returns the maximum number of segments for this maximum number of live blocks.
pub(super) fn max_segments(live_blocks: u64) -> usize {
    usize::try_from(live_blocks / BLOCKS_PER_SEGMENT).unwrap_or(usize::MAX)
}

/// The maximum memory per segment, in bytes: nodes of the map are at least half full, and usually two-thirds full.
const SEGMENT_BYTES: usize = 2 * size_of::<((DeviceId, u64), HeldSegment)>();

/// Returns the maximum memory of the segments, in bytes.
#[cfg(test)]
pub(super) fn max_bytes(live_blocks: u64) -> usize {
    max_segments(live_blocks) * SEGMENT_BYTES
}

/// The segments by device and address, as many as fit.
#[derive(Default)]
pub(super) struct Segments {
    held: Mutex<BTreeMap<(DeviceId, u64), HeldSegment>>,
    /// The number of segments that also count as blocks. It is usually 0, so that a pool's report need not search them.
    blocks: AtomicU64,
}

impl Segments {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(DeviceId, u64), HeldSegment>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the table with a segment's event.
    pub(super) fn apply(&self, event: &Event) {
        let key = (event.device, event.address);
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let segment = Segment::of_allocation(event);
                let mut held = self.lock();
                if held.len() < max_segments(settings::max_live_blocks()) || held.contains_key(&key) {
                    held.insert(key, HeldSegment { segment, from_driver: false, is_block: false });
                }
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                let removed = self.lock().remove(&key);
                let was_block = removed.is_some_and(|held| held.is_block);
                self.blocks.fetch_sub(u64::from(was_block), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Returns whether there is no room for another segment.
    #[cfg(feature = "cuda")]
    pub(super) fn is_full(&self) -> bool {
        self.lock().len() >= max_segments(settings::max_live_blocks())
    }

    /// Returns the approximate memory of the segments, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lock().len() * SEGMENT_BYTES
    }

    /// Inserts a segment that the driver allocated.
    #[cfg(feature = "cuda")]
    pub(super) fn insert_from_driver(&self, segment: Segment) {
        let held = HeldSegment { segment, from_driver: true, is_block: true };
        let before = self.lock().insert((segment.device, segment.address), held);
        if before.is_none_or(|before| !before.is_block) {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes and returns a segment, if the driver's hook reported it.
    #[cfg(feature = "cuda")]
    pub(super) fn remove_from_driver(&self, device: DeviceId, address: u64) -> Option<HeldSegment> {
        let mut held = self.lock();
        let found = *held.get(&(device, address)).filter(|held| held.from_driver)?;
        held.remove(&(device, address));
        if found.is_block {
            self.blocks.fetch_sub(1, Ordering::Relaxed);
        }
        Some(found)
    }

    /// Restores a driver's segment whose free failed.
    #[cfg(feature = "cuda")]
    pub(super) fn restore(&self, held: HeldSegment) {
        let key = (held.segment.device, held.segment.address);
        self.lock().insert(key, held);
        if held.is_block {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether any segment counts as a block.
    #[inline(always)]
    fn has_blocks(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) != 0
    }

    /// Makes the segment that contains an address no longer count as a block. Returns the segment if it counted as a
    /// block until now.
    fn unmark_block(&self, device: DeviceId, address: u64) -> Option<Segment> {
        let mut held = self.lock();
        let (_, around) = held.range_mut(..=(device, address)).next_back()?;
        let offset = address.checked_sub(around.segment.address)?;
        if around.segment.device != device || offset >= around.segment.size_bytes || !around.is_block {
            return None;
        }
        around.is_block = false;
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        Some(around.segment)
    }

    /// Returns whether the driver's hook has reported exactly this segment.
    fn is_known_from_driver(&self, device: DeviceId, address: u64, size_bytes: u64) -> bool {
        let held = self.lock();
        held.get(&(device, address))
            .is_some_and(|held| held.from_driver && held.segment.size_bytes == size_bytes)
    }

    /// Returns the segments whose allocations are stamped `since..=moment`, ordered by device and address.
    pub(super) fn between(&self, since: u64, moment: u64) -> Vec<Segment> {
        let mut between = Vec::new();
        loop {
            // Capacity is reserved while the segments are not locked.
            let count = self.lock().len();
            between.reserve(count);
            let held = self.lock();
            if held.len() > between.capacity() {
                continue;
            }
            let all = held.values().map(|held| held.segment);
            between.extend(all.filter(|segment| segment.ticks >= since && segment.ticks <= moment));
            break;
        }
        between
    }

    /// Removes all segments.
    pub(super) fn clear(&self) {
        let segments = std::mem::take(&mut *self.lock());
        // Freed after the lock is released.
        drop(segments);
        self.blocks.store(0, Ordering::Relaxed);
    }
}

impl HookContext {
    /// Notes that a pool allocates a block at `address`. The segment that contains the address does not count as a block
    /// from now on.
    #[inline(always)]
    pub(crate) fn end_segment_block(self, device: DeviceId, address: u64) {
        if self.recorder.segments.has_blocks() {
            self.end_block_around(device, address);
        }
    }

    #[cold]
    fn end_block_around(self, device: DeviceId, address: u64) {
        if let Some(segment) = self.recorder.segments.unmark_block(device, address) {
            self.with_room(move || self.retract_block(&segment));
        }
    }

    /// Returns whether the driver's hook has already reported the segment that a pool reports. If so, the segment no
    /// longer counts as a block.
    pub(super) fn is_reported_by_driver(
        self,
        action: Action,
        device: DeviceId,
        address: u64,
        size_bytes: u64,
    ) -> bool {
        let begins = matches!(action, Action::SegmentAlloc | Action::SegmentMap);
        if !begins || !self.recorder.segments.is_known_from_driver(device, address, size_bytes) {
            return false;
        }
        self.end_segment_block(device, address);
        true
    }

    #[cold]
    fn retract_block(self, segment: &Segment) {
        let Some(slot) = slot_of(segment.device) else { return };
        let newest = &self.thread.local().newest_ticks;
        let (ticks, block) = self.recorder.live.remove(segment.device, segment.address, newest);
        let Some(block) = block else { return };
        // To consumers, the segment's memory is live only as the blocks that the pool reports from now on.
        probes::freeing_if_watched(segment.device, segment.address);
        let totals = self.thread.state.totals(slot);
        totals.uncount_alloc(block.size_bytes);
        // The block was not an allocation, so it is subtracted from its scope's sums, too.
        let less = [block.size_bytes, 1].map(u64::wrapping_neg);
        totals.report_growth(less);
        scope_sums::add(slot, block.scope, less[0], less[1]);
        let flags = block.flags.with(EventFlags::SUPERSEDED);
        self.event(
            slot,
            Event {
                ticks,
                address: segment.address,
                size_bytes: block.size_bytes,
                stream: block.stream,
                stack: block.stack,
                scope: block.scope,
                thread: self.thread.thread_id(),
                device: segment.device,
                action: Action::Free,
                flags,
            },
        );
    }
}
