//! The memory that a device holds at the end of a snapshot: allocated bytes, bytes lost to rounding, pending bytes and free
//! bytes. The sums are defined as in PyTorch's own statistics. `summary` and `check`
//! use them.

use crate::lifetimes::lifetimes;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::{BlockState, Key, PyTorch};
use memtrack_model::snapshot::{LiveBlock, Segment, Snapshot, WeighedBlock, lay_out};
use std::collections::{BTreeMap, HashMap};

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
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let mut held = Self::default();
        let blocks = weighed_blocks(snapshot, device);
        match snapshot.pytorch.as_deref() {
            Some(pytorch) => {
                for row in file_segments(snapshot, pytorch, device) {
                    held.add_file_segment(snapshot, pytorch, row);
                }
            }
            None => held.add_recorded_segments(snapshot, device, &by_address(&blocks)),
        }
        held.add_sampled_blocks(&blocks);
        held
    }

    /// Adds up the memory of each private pool of `device`, and returns the totals with the pools' ids, largest first.
    /// Free memory in a pool is available only to requests from the same pool. All memory of a recording is in the
    /// default pool.
    pub fn of_private_pools(snapshot: &Snapshot, device: DeviceId) -> Vec<((u64, u64), Self)> {
        let mut pools: BTreeMap<(u64, u64), Self> = BTreeMap::new();
        let Some(pytorch) = snapshot.pytorch.as_deref() else { return Vec::new() };
        for row in file_segments(snapshot, pytorch, device) {
            let pool = pytorch.segments.named_pool(row, Key::SegmentPoolId);
            if let Some(pool) = pool.filter(|&pool| pool != DEFAULT_POOL) {
                pools.entry(pool).or_default().add_file_segment(snapshot, pytorch, row);
            }
        }
        let mut pools: Vec<_> = pools.into_iter().collect();
        pools.sort_by_key(|(_, held)| std::cmp::Reverse(held.reserved));
        pools
    }

    /// Adds the number of unrecorded blocks that the samples stand for. The bytes of the samples already include them.
    fn add_sampled_blocks(&mut self, blocks: &[(LiveBlock, WeighedBlock)]) {
        let live = blocks.iter().filter(|(block, _)| !block.pending_free);
        let sampled: Vec<f64> =
            live.filter_map(|(_, weighed)| weighed.estimated.then_some(weighed.blocks - 1.0)).collect();
        self.estimated = !sampled.is_empty();
        self.blocks = self.blocks.saturating_add(sampled.iter().sum::<f64>().round() as u64);
    }

    /// Adds the segments of a recording. `blocks` are the device's live blocks by address.
    fn add_recorded_segments(&mut self, snapshot: &Snapshot, device: DeviceId, blocks: &[LiveBlock]) {
        lay_out(&recorded_segments(snapshot, device), blocks, |segment, pieces| {
            let held = pieces.iter().map(|piece| {
                let block = piece.block.map(|block| &blocks[block]);
                let state = match block.map(|block| block.pending_free) {
                    None => BlockState::Inactive,
                    Some(false) => BlockState::ActiveAllocated,
                    Some(true) => BlockState::ActivePendingFree,
                };
                (state, piece.size_bytes, block.map(|block| block.size_bytes))
            });
            self.add_segment(segment.size_bytes, segment.is_expandable, held);
        });
    }

    /// Adds a segment of a PyTorch file.
    fn add_file_segment(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, row: usize) {
        let total = pytorch.segments.number(row, Key::TotalSize);
        let is_expandable = pytorch.segments.number(row, Key::IsExpandable) != 0;
        let held = pytorch.segments.rows(row, Key::Blocks).map(|block| {
            let state = BlockState::named(snapshot.strings.bytes(pytorch.blocks.text(block, Key::State)));
            let requested = match state {
                BlockState::Inactive => None,
                _ => pytorch.requested_bytes(&snapshot.strings, block),
            };
            (state, pytorch.blocks.number(block, Key::Size), requested)
        });
        self.add_segment(total, is_expandable, held);
    }

    /// Adds a segment of `total` bytes with its blocks: their states, their sizes, and their requested bytes if these are
    /// known.
    fn add_segment(
        &mut self,
        total: u64,
        is_expandable: bool,
        blocks: impl ExactSizeIterator<Item = (BlockState, u64, Option<u64>)>,
    ) {
        self.segments += 1;
        self.expandable += u64::from(is_expandable);
        add_saturating(&mut self.reserved, total);
        // PyTorch does not count expandable segments as split either, because their pages can be unmapped individually.
        let split = blocks.len() > 1 && !is_expandable;
        let mut active = false;
        for (state, size, requested) in blocks {
            active |= state != BlockState::Inactive;
            match state {
                BlockState::ActiveAllocated => {
                    self.blocks += 1;
                    add_saturating(&mut self.allocated, size);
                    match requested {
                        Some(bytes) => add_saturating(&mut self.requested, bytes),
                        None => self.unknown_requests += 1,
                    }
                }
                BlockState::ActivePendingFree => {
                    self.pending_blocks += 1;
                    add_saturating(&mut self.pending, size);
                    add_saturating(&mut self.pending_requested, requested.unwrap_or(0));
                }
                BlockState::Inactive => {
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

/// Returns the live blocks of a device by address. The size of each is the number of bytes that it represents.
pub fn live_blocks(snapshot: &Snapshot, device: DeviceId) -> Vec<LiveBlock> {
    by_address(&weighed_blocks(snapshot, device))
}

/// Sorts blocks by address, and replaces their sizes with the numbers of bytes that they represent.
fn by_address(blocks: &[(LiveBlock, WeighedBlock)]) -> Vec<LiveBlock> {
    let with_bytes =
        |(block, weighed): &(LiveBlock, WeighedBlock)| LiveBlock { size_bytes: weighed.bytes, ..*block };
    let mut blocks: Vec<LiveBlock> = blocks.iter().map(with_bytes).collect();
    blocks.sort_by_key(|block| block.address);
    blocks
}

/// Returns the live blocks of a device with their weights.
fn weighed_blocks(snapshot: &Snapshot, device: DeviceId) -> Vec<(LiveBlock, WeighedBlock)> {
    let rows = snapshot.blocks.iter().enumerate().filter(|(_, block)| block.device == device);
    let mut blocks: Vec<(LiveBlock, WeighedBlock)> =
        rows.map(|(row, block)| (*block, snapshot.weighed_block(row))).collect();
    // Reports count a sampled block as its allocation describes it, even if another block that was not sampled has since
    // replaced it in the table of live blocks.
    if snapshot.pytorch.is_none() && snapshot.is_heap(device) && snapshot.has_samples() {
        let allocated: HashMap<u64, WeighedBlock> = lifetimes(snapshot, device)
            .into_iter()
            .filter_map(|one| {
                let row = one.from.filter(|_| one.to.is_none())?;
                Some((snapshot.events.address[row], snapshot.weighed_event(row)))
            })
            .collect();
        for (block, weighed) in &mut blocks {
            *weighed = allocated.get(&block.address).copied().unwrap_or(*weighed);
        }
    }
    blocks
}

/// Returns the segments of a device by address.
pub fn recorded_segments(snapshot: &Snapshot, device: DeviceId) -> Vec<Segment> {
    let of_device = |segment: &&Segment| segment.device == device;
    let mut segments: Vec<Segment> = snapshot.segments.iter().filter(of_device).copied().collect();
    segments.sort_by_key(|segment| segment.address);
    segments
}

/// Returns the rows of a device's segments in a PyTorch file.
pub fn file_segments<'a>(
    snapshot: &'a Snapshot,
    pytorch: &PyTorch,
    device: DeviceId,
) -> impl Iterator<Item = usize> + use<'a> {
    let all = snapshot.segments.iter().take(pytorch.segments.len()).enumerate();
    all.filter_map(move |(row, segment)| (segment.device == device).then_some(row))
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
