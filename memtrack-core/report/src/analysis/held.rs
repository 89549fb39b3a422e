//! The memory that a device holds at the end of a snapshot in PyTorch's form: bytes allocated, lost to
//! rounding, pending and free. `summary` and `check` use it; the sums are those of PyTorch's own statistics.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use std::collections::BTreeMap;

/// Sums over the segments of a device, in bytes unless they are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Segments.
    pub segments: u64,
    /// The number of segments that are parts of expandable ones.
    pub expandable: u64,
    /// Bytes of all segments.
    pub reserved: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// Bytes of the allocated blocks.
    pub allocated: u64,
    /// Requested bytes of the allocated blocks, as far as they are known: [`Self::requested()`].
    pub requested: u64,
    /// Allocated blocks without a requested size, as in some of PyTorch's older files.
    pub unknown_requests: u64,
    /// Blocks that were freed but are still in use by a stream.
    pub pending_blocks: u64,
    /// Bytes of these blocks.
    pub pending: u64,
    /// Requested bytes of these blocks, as far as they are known.
    pub pending_requested: u64,
    /// Whether sampled blocks are among the allocated ones, so that their bytes and number are estimates.
    pub estimated: bool,
    /// Bytes of free blocks.
    pub inactive: u64,
    /// Bytes of free blocks that share a segment with others, except in expandable segments: they cannot be released.
    pub inactive_split: u64,
    /// The number of these blocks.
    pub inactive_split_blocks: u64,
    /// Bytes of the largest of these blocks.
    pub largest_inactive_split: u64,
    /// Bytes of the largest free block.
    pub largest_inactive: u64,
    /// Segments that are completely free.
    pub free_segments: u64,
    /// Bytes of these segments.
    pub free_segment_bytes: u64,
}

impl Held {
    /// Sums up the memory that `device` holds.
    pub fn of(snapshot: &PytorchSnapshot, device: DeviceId) -> Self {
        let mut held = Self::default();
        let pytorch = snapshot.details();
        for (row, segment) in snapshot.segments.iter().enumerate() {
            if segment.device == device && row < pytorch.segments.len() {
                held.segment(snapshot, pytorch, row);
            }
        }
        held.weigh(snapshot, pytorch, device);
        held
    }

    /// Sums up the memory that each private pool of `device` holds, with the pool's number, the largest first.
    /// Free memory of a pool serves only that pool's requests.
    pub fn of_private_pools(snapshot: &PytorchSnapshot, device: DeviceId) -> Vec<((u64, u64), Self)> {
        let mut pools: BTreeMap<(u64, u64), Self> = BTreeMap::new();
        let pytorch = snapshot.details();
        for (row, segment) in snapshot.segments.iter().enumerate() {
            if segment.device != device || row >= pytorch.segments.len() {
                continue;
            }
            let pool = pytorch.segments.named_pool(row, Key::SegmentPoolId);
            if let Some(pool) = pool.filter(|&pool| pool != DEFAULT_POOL) {
                pools.entry(pool).or_default().segment(snapshot, pytorch, row);
            }
        }
        let mut pools: Vec<_> = pools.into_iter().collect();
        pools.sort_by_key(|(_, held)| std::cmp::Reverse(held.reserved));
        pools
    }

    /// Counts the blocks that sampled ones stand for; their bytes are in the file as they are.
    fn weigh(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, device: DeviceId) {
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

    fn segment(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, row: usize) {
        let total = pytorch.segments.number(row, Key::TotalSize);
        self.segments += 1;
        self.expandable += u64::from(pytorch.segments.number(row, Key::IsExpandable) != 0);
        add(&mut self.reserved, total);
        let blocks = pytorch.segments.rows(row, Key::Blocks);
        // Pages of expandable segments are unmapped one by one; PyTorch does not count them either.
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

    /// Returns the bytes that rounding added to the requested ones, if those are known.
    pub fn rounding(&self) -> Option<u64> {
        Some(self.allocated.saturating_sub(self.requested()?))
    }

    /// Returns the free bytes in split segments as a share of all reserved bytes, 0 to 1: memory that the
    /// allocator holds but can neither release nor use for a request larger than its pieces.
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

/// Adds, saturating at the largest number.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}
