//! The memory that a device holds at the end of a snapshot in PyTorch's format: allocated bytes, bytes lost to
//! rounding, pending bytes and free bytes. The sums are defined as in PyTorch's own statistics. `summary` and `check`
//! use them.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use std::collections::BTreeMap;

/// Totals over a device's segments. Fields are in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldMemory {
    /// The number of segments.
    pub segments: u64,
    /// The number of segments that are part of an expandable segment.
    pub expandable: u64,
    /// Total bytes of all segments.
    pub reserved: u64,
    /// The number of allocated blocks.
    pub blocks: u64,
    /// Bytes in allocated blocks.
    pub allocated: u64,
    /// Requested bytes of those allocated blocks that have a requested size. [`Self::requested()`] returns this sum
    /// only if all of them have one.
    pub requested: u64,
    /// The number of allocated blocks without a requested size, as in some older PyTorch files.
    pub unknown_requests: u64,
    /// The number of pending blocks, which have been freed but are still in use by a stream.
    pub pending_blocks: u64,
    /// Bytes in pending blocks.
    pub pending: u64,
    /// Requested bytes of the pending blocks whose requested size is known.
    pub pending_requested: u64,
    /// Whether some of the allocated blocks are samples, which makes the number and bytes of allocated blocks
    /// estimates.
    pub estimated: bool,
    /// Bytes in free blocks.
    pub inactive: u64,
    /// Bytes in free blocks that cannot be released because they share a segment with other blocks. Expandable segments
    /// do not count.
    pub inactive_split: u64,
    /// The number of free blocks counted in [`Self::inactive_split`].
    pub inactive_split_blocks: u64,
    /// The size of the largest free block counted in [`Self::inactive_split`].
    pub largest_inactive_split: u64,
    /// The size of the largest free block.
    pub largest_inactive: u64,
    /// The number of segments that are completely free.
    pub free_segments: u64,
    /// Total bytes of the segments that are completely free.
    pub free_segment_bytes: u64,
}

impl HeldMemory {
    /// Adds up the memory that `device` holds.
    pub fn of(snapshot: &PytorchSnapshot, device: DeviceId) -> Self {
        let mut held = Self::default();
        let pytorch = snapshot.details();
        for (row, segment) in snapshot.segments.iter().enumerate() {
            if segment.device == device && row < pytorch.segments.len() {
                held.add_segment(snapshot, pytorch, row);
            }
        }
        held.add_sampled_blocks(snapshot, pytorch, device);
        held
    }

    /// Adds up the memory of each private pool of `device`, and returns the totals with the pools' ids, largest first.
    /// Free memory in a pool is available only to requests from the same pool.
    pub fn of_private_pools(snapshot: &PytorchSnapshot, device: DeviceId) -> Vec<((u64, u64), Self)> {
        let mut pools: BTreeMap<(u64, u64), Self> = BTreeMap::new();
        let pytorch = snapshot.details();
        for (row, segment) in snapshot.segments.iter().enumerate() {
            if segment.device != device || row >= pytorch.segments.len() {
                continue;
            }
            let pool = pytorch.segments.named_pool(row, Key::SegmentPoolId);
            if let Some(pool) = pool.filter(|&pool| pool != DEFAULT_POOL) {
                pools.entry(pool).or_default().add_segment(snapshot, pytorch, row);
            }
        }
        let mut pools: Vec<_> = pools.into_iter().collect();
        pools.sort_by_key(|(_, held)| std::cmp::Reverse(held.reserved));
        pools
    }

    /// Adds the number of unrecorded blocks that the samples stand for. The bytes in the file already include them.
    fn add_sampled_blocks(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, device: DeviceId) {
        if pytorch.samples.is_empty() {
            return;
        }
        let blocks = snapshot.blocks.iter().enumerate();
        let live = blocks.filter(|(_, block)| block.device == device && !block.pending_free);
        let sampled: Vec<f64> = live
            .map(|(row, _)| snapshot.weighed_block(row))
            .filter_map(|weighed| weighed.estimated.then_some(weighed.blocks - 1.0))
            .collect();
        self.estimated = !sampled.is_empty();
        self.blocks = self.blocks.saturating_add(sampled.iter().sum::<f64>().round() as u64);
    }

    fn add_segment(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, row: usize) {
        let total = pytorch.segments.number(row, Key::TotalSize);
        self.segments += 1;
        self.expandable += u64::from(pytorch.segments.number(row, Key::IsExpandable) != 0);
        add_saturating(&mut self.reserved, total);
        let blocks = pytorch.segments.rows(row, Key::Blocks);
        // PyTorch does not count expandable segments as split either, because their pages can be unmapped individually.
        let split = blocks.len() > 1 && pytorch.segments.number(row, Key::IsExpandable) == 0;
        let mut active = false;
        for block in blocks {
            let table = &pytorch.blocks;
            let size = table.number(block, Key::Size);
            let requested = || pytorch.requested_bytes(&snapshot.strings, block);
            match snapshot.strings.bytes(table.text(block, Key::State)) {
                b"active_allocated" => {
                    active = true;
                    self.blocks += 1;
                    add_saturating(&mut self.allocated, size);
                    match requested() {
                        Some(bytes) => add_saturating(&mut self.requested, bytes),
                        None => self.unknown_requests += 1,
                    }
                }
                b"active_pending_free" | b"active_awaiting_free" => {
                    active = true;
                    self.pending_blocks += 1;
                    add_saturating(&mut self.pending, size);
                    add_saturating(&mut self.pending_requested, requested().unwrap_or(0));
                }
                _ => {
                    add_saturating(&mut self.inactive, size);
                    if split {
                        add_saturating(&mut self.inactive_split, size);
                        self.inactive_split_blocks += 1;
                        self.largest_inactive_split = self.largest_inactive_split.max(size);
                    }
                    self.largest_inactive = self.largest_inactive.max(size);
                }
            }
        }
        if !active {
            self.free_segments += 1;
            add_saturating(&mut self.free_segment_bytes, total);
        }
    }

    /// Returns the bytes in blocks that are allocated or pending.
    pub fn active(&self) -> u64 {
        self.allocated.saturating_add(self.pending)
    }

    /// Returns the requested bytes of the allocated blocks if all of them have a requested size.
    pub fn requested(&self) -> Option<u64> {
        (self.unknown_requests == 0).then_some(self.requested)
    }

    /// Returns how many bytes rounding added to the requested bytes, if the requested bytes are known.
    pub fn rounding(&self) -> Option<u64> {
        Some(self.allocated.saturating_sub(self.requested()?))
    }

    /// Returns the free bytes in split segments as a share of all reserved bytes, from 0 to 1. The allocator can
    /// neither release this memory nor use it for requests larger than the free pieces.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.inactive_split as f64 / self.reserved as f64 }
    }
}

const DEFAULT_POOL: (u64, u64) = (0, 0);

/// Formats a pool's id as its name in reports.
pub fn pool_name(pool: (u64, u64)) -> String {
    match pool {
        DEFAULT_POOL => "default pool".to_owned(),
        (first, second) => format!("pool ({first}, {second})"),
    }
}

/// Adds `bytes` to `sum`, saturating on overflow.
fn add_saturating(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}
