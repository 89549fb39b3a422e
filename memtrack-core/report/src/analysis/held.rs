//! The memory that a device holds at the end of a snapshot in PyTorch's form: allocated bytes, bytes lost to rounding,
//! pending and free bytes. The sums are defined as in PyTorch's own statistics. `summary` and `check` use them.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use std::collections::BTreeMap;

/// Sums over the segments of a device. Fields without another unit are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldMemory {
    /// The number of segments.
    pub segments: u64,
    /// The number of segments that are parts of expandable segments.
    pub expandable: u64,
    /// Bytes of all segments.
    pub reserved: u64,
    /// The number of allocated blocks.
    pub blocks: u64,
    /// Bytes of the allocated blocks.
    pub allocated: u64,
    /// Requested bytes of the allocated blocks that have a requested size. [`Self::requested()`] returns them only if
    /// all have one.
    pub requested: u64,
    /// The number of allocated blocks without a requested size, as in some older PyTorch files.
    pub unknown_requests: u64,
    /// The number of pending blocks: freed, but still in use by a stream.
    pub pending_blocks: u64,
    /// Bytes of the pending blocks.
    pub pending: u64,
    /// Requested bytes of the pending blocks, as far as they are known.
    pub pending_requested: u64,
    /// Whether some of the allocated blocks are samples, so that the bytes and the number of allocated blocks are
    /// estimates.
    pub estimated: bool,
    /// Bytes of free blocks.
    pub inactive: u64,
    /// Bytes of free blocks that share a segment with other blocks, and so cannot be released. Expandable segments do
    /// not count.
    pub inactive_split: u64,
    /// The number of such free blocks in split segments.
    pub inactive_split_blocks: u64,
    /// Bytes of the largest such free block in a split segment.
    pub largest_inactive_split: u64,
    /// Bytes of the largest free block.
    pub largest_inactive: u64,
    /// The number of segments that are completely free.
    pub free_segments: u64,
    /// Bytes of the segments that are completely free.
    pub free_segment_bytes: u64,
}

impl HeldMemory {
    /// Sums up the memory that `device` holds.
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

    /// Sums up the memory of each private pool of `device`, with the pool's id, the largest first. Free memory of a
    /// pool is available only to requests of the same pool.
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

    /// Adds the number of blocks that samples stand for. The bytes in the file already include them.
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
        add(&mut self.reserved, total);
        let blocks = pytorch.segments.rows(row, Key::Blocks);
        // Pages of expandable segments can be unmapped individually, so PyTorch does not count them as split either.
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
                    add(&mut self.allocated, size);
                    match requested() {
                        Some(bytes) => add(&mut self.requested, bytes),
                        None => self.unknown_requests += 1,
                    }
                }
                b"active_pending_free" | b"active_awaiting_free" => {
                    active = true;
                    self.pending_blocks += 1;
                    add(&mut self.pending, size);
                    add(&mut self.pending_requested, requested().unwrap_or(0));
                }
                _ => {
                    add(&mut self.inactive, size);
                    if split {
                        add(&mut self.inactive_split, size);
                        self.inactive_split_blocks += 1;
                        self.largest_inactive_split = self.largest_inactive_split.max(size);
                    }
                    self.largest_inactive = self.largest_inactive.max(size);
                }
            }
        }
        if !active {
            self.free_segments += 1;
            add(&mut self.free_segment_bytes, total);
        }
    }

    /// Returns the bytes of blocks that are allocated or pending.
    pub fn active(&self) -> u64 {
        self.allocated.saturating_add(self.pending)
    }

    /// Returns the requested bytes of the allocated blocks, if all of them have a requested size.
    pub fn requested(&self) -> Option<u64> {
        (self.unknown_requests == 0).then_some(self.requested)
    }

    /// Returns the bytes that rounding added to the requested bytes, if those are known.
    pub fn rounding(&self) -> Option<u64> {
        Some(self.allocated.saturating_sub(self.requested()?))
    }

    /// Returns the free bytes in split segments as a share of all reserved bytes, 0 to 1: memory that the allocator can
    /// neither release nor use for requests larger than the free pieces.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.inactive_split as f64 / self.reserved as f64 }
    }
}

const DEFAULT_POOL: (u64, u64) = (0, 0);

/// Formats a pool's name for reports.
pub fn pool_name(pool: (u64, u64)) -> String {
    match pool {
        DEFAULT_POOL => "default pool".to_owned(),
        (first, second) => format!("pool ({first}, {second})"),
    }
}

/// Adds `bytes` to `sum`, saturating.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}
