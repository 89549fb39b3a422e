//! What of a device is in use and no block of the program's: what an allocator caches, and what memtrack does not see.

use super::HeldAt;
use crate::analysis::estimate::Estimate;
use crate::analysis::reserved::reserved_after;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment, Snapshot};
use serde::Serialize;

/// The moment, as rows of the trace and as a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The row of the event that it comes after.
    pub(super) row: Option<usize>,
    /// Whether nothing changed on the device later, so that the tables of what is held are of this moment.
    pub(super) is_end: bool,
    /// The time in ticks.
    pub(super) ticks: u64,
    pub(super) tells_reserved: bool,
}

/// What is reserved and in no block. What an allocator rounds blocks up by is part of it, where only requested sizes were
/// recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cached {
    /// Bytes of segments, less those of blocks.
    pub allocator_bytes: u64,
    /// Of those, bytes in segments without any block, which could be given back; none where only the sum is known.
    pub free_segment_bytes: Option<u64>,
    /// The largest piece; none where only the sum is known.
    pub largest_bytes: Option<u64>,
    /// What the CUDA driver's own pools keep unused.
    pub driver_pool_bytes: u64,
}

impl Cached {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.allocator_bytes.saturating_add(self.driver_pool_bytes)
    }

    /// That of `device`, on which `held_bytes` are held; none where nothing is cached or that is not known.
    pub(super) fn of(snapshot: &Snapshot, device: DeviceId, place: &Place, held_bytes: u64) -> Option<Self> {
        if snapshot.is_heap(device) {
            return None;
        }
        let mut cached = Self::default();
        if place.tells_reserved && place.is_end {
            cached.add_gaps(snapshot, device);
        } else if place.tells_reserved {
            cached.allocator_bytes = reserved_after(snapshot, device, place.row).saturating_sub(held_bytes);
        }
        if place.is_end
            && let Some(reading) = reading(snapshot, device, HeldAt::Now)
        {
            cached.driver_pool_bytes = reading.cached_bytes();
        }
        (cached.bytes() > 0).then_some(cached)
    }

    /// What lies between the blocks of each segment.
    fn add_gaps(&mut self, snapshot: &Snapshot, device: DeviceId) {
        let mut blocks: Vec<(u64, u64)> = snapshot
            .blocks
            .iter()
            .filter(|block| block.device == device)
            .map(|block| (block.address, block.size_bytes))
            .collect();
        blocks.sort_unstable();
        let (mut free_segments, mut largest) = (0u64, 0u64);
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
            let end = segment.address.saturating_add(segment.size_bytes);
            let first = blocks.partition_point(|&(address, _)| address < segment.address);
            let mut at = segment.address;
            let mut any = false;
            let inside = blocks[first..].iter().take_while(|&&(address, _)| address < end);
            let mut gap = |bytes: u64| {
                self.allocator_bytes = self.allocator_bytes.saturating_add(bytes);
                largest = largest.max(bytes);
            };
            for &(address, size) in inside {
                any = true;
                gap(address.saturating_sub(at));
                at = at.max(address.saturating_add(size));
            }
            gap(end.saturating_sub(at));
            if !any {
                free_segments = free_segments.saturating_add(segment.size_bytes);
            }
        }
        (self.free_segment_bytes, self.largest_bytes) = (Some(free_segments), Some(largest));
    }
}

/// What is in use and is not memtrack's to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Unseen {
    /// Bytes: of a device, what the driver says is in use and is neither recorded nor cached. Of a heap, what the process has
    /// resident beyond all recorded blocks: that much at least, because blocks need not be resident.
    pub bytes: u64,
    /// Bytes that are in use in all: of the device, or resident.
    pub used_bytes: u64,
    /// Whether it is about the process's resident memory.
    pub is_resident: bool,
}

impl Unseen {
    /// That of `device`; `held` is what its blocks come to.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        at: HeldAt,
        place: &Place,
        held: &Estimate,
    ) -> Option<Self> {
        if snapshot.is_heap(device) {
            let counts = snapshot.exact_counts(device).filter(|_| place.is_end)?;
            let used_bytes = counts.reserved_bytes;
            let bytes = used_bytes.saturating_sub(held.high.ceil() as u64);
            return (bytes > 0).then_some(Self { bytes, used_bytes, is_resident: true });
        }
        // One that was taken before most of it was allocated says nothing of this moment.
        let reading =
            reading(snapshot, device, at).filter(|reading| reading.used_bytes() as f64 >= held.low)?;
        Some(Self { bytes: reading.untracked_bytes(), used_bytes: reading.used_bytes(), is_resident: false })
    }
}

/// What the driver said of `device` at the moment.
fn reading(snapshot: &Snapshot, device: DeviceId, at: HeldAt) -> Option<&DriverReading> {
    let of =
        |moment| snapshot.driver.iter().find(|reading| reading.device == device && reading.moment == moment);
    match at {
        HeldAt::OutOfMemory => of(ReadingMoment::OutOfMemory).or_else(|| of(ReadingMoment::Last)),
        HeldAt::Peak => of(ReadingMoment::Fullest),
        HeldAt::Now | HeldAt::Killed | HeldAt::Cut => of(ReadingMoment::Last),
    }
}
