//! Memory that is in use on a device but is not in the program's recorded blocks: an allocator's cache, and memory that
//! memtrack does not track.

use super::HeldAt;
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::reserved::reserved_after;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment, Snapshot};
use serde::Serialize;

/// A moment, both as a row of the trace and as a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldMoment {
    /// The row of the last event up to the moment; `None` before the first event, and `usize::MAX` at the end.
    pub(super) row: Option<usize>,
    /// Whether nothing changed on the device after the moment. The table of live blocks then describes the moment.
    pub(super) is_end: bool,
    /// The time of the moment, in ticks.
    pub(super) ticks: u64,
    pub(super) has_reserved_bytes: bool,
}

/// Reserved memory outside of blocks. It includes the allocator's rounding if only requested sizes were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cached {
    /// The bytes that the allocator caches: the bytes in segments minus the bytes in blocks.
    pub allocator_bytes: u64,
    /// The bytes in segments that contain no blocks and could be released; null if only the sum, `allocator_bytes`, is
    /// known.
    pub free_segment_bytes: Option<u64>,
    /// The size in bytes of the largest contiguous piece that is cached in a segment; null if only the sum,
    /// `allocator_bytes`, is known.
    pub largest_bytes: Option<u64>,
    /// Unused bytes that the CUDA driver's own pools retain.
    pub driver_pool_bytes: u64,
}

impl Cached {
    /// Returns the bytes cached by the allocator and by the driver's pools.
    pub fn bytes(&self) -> u64 {
        self.allocator_bytes.saturating_add(self.driver_pool_bytes)
    }

    /// Returns the cache of `device`, whose blocks have `held_bytes`; `None` if nothing is cached or the amount is
    /// unknown.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        moment: &HeldMoment,
        held_bytes: u64,
    ) -> Option<Self> {
        if !snapshot.device_kind(device).has_segments() {
            return None;
        }
        let mut cached = Self::default();
        if moment.has_reserved_bytes && moment.is_end {
            cached.add_gaps(snapshot, device);
        } else if moment.has_reserved_bytes {
            cached.allocator_bytes = reserved_after(snapshot, device, moment.row).saturating_sub(held_bytes);
        }
        if moment.is_end
            && let Some(reading) = find_reading(snapshot, device, HeldAt::Now)
        {
            cached.driver_pool_bytes = reading.cached_bytes();
        }
        (cached.bytes() > 0).then_some(cached)
    }

    /// Adds the gaps between blocks in each segment.
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

/// Memory that is in use but not tracked by memtrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Unseen"))]
#[non_exhaustive]
pub struct Untracked {
    /// The untracked bytes. For a device, these are the bytes that the driver reports as in use but that are neither
    /// recorded nor cached. For a heap, this is the process's resident memory minus all recorded blocks, mapped ones included. It is a lower
    /// bound because blocks need not be resident.
    pub bytes: u64,
    /// All bytes in use on the device; for a heap, all resident bytes of the process.
    pub used_bytes: u64,
    /// Whether the numbers are based on the process's resident memory, as they are for a heap.
    pub is_resident: bool,
}

impl Untracked {
    /// Returns the untracked memory of `device`, or `None` if it is unknown; `held` is the sum of the device's blocks.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        at: HeldAt,
        moment: &HeldMoment,
        held: &Estimate,
    ) -> Option<Self> {
        if snapshot.is_heap(device) {
            let counts = snapshot.exact_counts(device).filter(|_| moment.is_end)?;
            let used_bytes = counts.reserved_bytes;
            let mapped = snapshot.blocks.iter().filter(|block| block.device == DeviceId::MAPPED);
            let mapped: u64 = mapped.fold(0, |sum, block| sum.saturating_add(block.size_bytes));
            let bytes = used_bytes.saturating_sub(held.high.ceil() as u64).saturating_sub(mapped);
            return (bytes > 0).then_some(Self { bytes, used_bytes, is_resident: true });
        }
        // A reading taken before most of the memory was allocated does not apply to this moment.
        let reading =
            find_reading(snapshot, device, at).filter(|reading| reading.used_bytes() as f64 >= held.low)?;
        Some(Self { bytes: reading.untracked_bytes(), used_bytes: reading.used_bytes(), is_resident: false })
    }
}

/// Returns the driver's reading of `device` that belongs to the described moment.
fn find_reading(snapshot: &Snapshot, device: DeviceId, at: HeldAt) -> Option<&DriverReading> {
    let of =
        |moment| snapshot.driver.iter().find(|reading| reading.device == device && reading.moment == moment);
    match at {
        HeldAt::OutOfMemory => of(ReadingMoment::OutOfMemory).or_else(|| of(ReadingMoment::Last)),
        HeldAt::Peak => of(ReadingMoment::Fullest),
        HeldAt::Now | HeldAt::Killed | HeldAt::Cut => of(ReadingMoment::Last),
    }
}
