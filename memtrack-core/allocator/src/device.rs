//! The allocator of one device: its state, and what every operation shares. The operations have a file each.

use super::block::{Block, BlockId, Blocks};
use super::caller::Caller;
use super::deferred_frees::DeferredFrees;
use super::device_memory::DeviceMemory;
use super::error::AllocatorError;
use super::events::EventQueues;
use super::expandable::Ranges;
use super::history::{History, TraceEntry};
use super::live_blocks::LiveBlocks;
use super::pools::{Pool, PoolId};
use super::private_pools::PrivatePools;
use super::settings::{AllocatorOptions, Settings};
use super::stats::DeviceStats;
use memtrack_model::event::{Action, DeviceId, StackId, StreamId};
use memtrack_model::options::Context;

/// One device. Its methods are called with its lock held.
#[derive(Debug)]
pub(super) struct Device<M: DeviceMemory> {
    pub(super) id: DeviceId,
    pub(super) options: AllocatorOptions,
    pub(super) total_memory: u64,
    /// How much may be taken from the device; none: all there is.
    pub(super) limit: Option<u64>,
    /// What was taken from it.
    pub(super) taken: u64,
    pub(super) blocks: Blocks,
    pub(super) pools: Vec<Pool>,
    pub(super) private: PrivatePools,
    pub(super) ranges: Ranges,
    pub(super) events: EventQueues<M::Event>,
    pub(super) deferred: DeferredFrees,
    pub(super) live: LiveBlocks,
    pub(super) stats: DeviceStats,
    pub(super) history: History,
    /// Whether memtrack's recorder hears of events too.
    pub(super) reports: bool,
    segments_made: u32,
    /// The recorder hears of segments from the driver.
    segments_are_recorded: bool,
    /// The last, because it goes last: events need what it keeps alive.
    pub(super) memory: M,
}

fn is_of_segment(action: Action) -> bool {
    use Action::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
    matches!(action, SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap)
}

impl<M: DeviceMemory> Device<M> {
    pub(super) fn new(id: DeviceId, memory: M, settings: &Settings) -> Result<Self, AllocatorError> {
        let total_memory = memory.memory_info()?.total;
        let options = *settings.options();
        let max_split_size = options.max_split_size as i64;
        let segments_are_recorded = memory.segments_are_recorded();
        let mut device = Self {
            id,
            segments_are_recorded,
            memory,
            options,
            total_memory,
            limit: None,
            taken: 0,
            blocks: Blocks::default(),
            pools: vec![Pool::new((0, 0)), Pool::new((0, 0))],
            private: PrivatePools::default(),
            ranges: Ranges::default(),
            events: EventQueues::default(),
            deferred: DeferredFrees::default(),
            live: LiveBlocks::default(),
            stats: DeviceStats { max_split_size, ..DeviceStats::default() },
            history: History::default(),
            reports: true,
            segments_made: 0,
        };
        device.set_fraction(settings.initial_fraction());
        Ok(device)
    }

    #[inline]
    pub(super) fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0 as usize]
    }

    #[inline]
    pub(super) fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    /// Puts a block that nobody uses into its pool.
    #[inline(always)]
    pub(super) fn cache(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.pools[block.pool.0 as usize].insert(id, block);
    }

    /// Takes a block out of its pool.
    #[inline(always)]
    pub(super) fn uncache(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool.0 as usize].remove(block);
    }

    /// The age of a segment that is made now.
    pub(super) fn next_age(&mut self) -> u32 {
        self.segments_made = self.segments_made.checked_add(1).expect("more than 4 G segments");
        self.segments_made
    }

    /// Of the device's memory, `fraction` may be used; it is from 0 to 1. As in PyTorch, that is the nearest number
    /// of bytes: 0.58 of 100 MiB are 58 MiB, though the product is a little less.
    pub(super) fn set_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then_some((fraction * self.total_memory as f64).round() as u64);
    }

    /// Counts memory that was taken from the device or given back.
    pub(super) fn count_reserved(&mut self, pool: PoolId, change: i64) {
        self.taken = self.taken.wrapping_add_signed(change);
        self.stats.reserved_bytes.change(pool.kind(), change);
        if !pool.is_default() {
            let owner = self.pool(pool).owner;
            let private = self.stats.reserved_bytes_by_private_pools.entry(owner).or_default();
            private.change(pool.kind(), change);
        }
    }

    /// Records what happened to a block or a segment.
    #[inline(always)]
    pub(super) fn record(
        &mut self,
        action: Action,
        address: u64,
        size: u64,
        place: (StreamId, PoolId),
        context: Caller,
    ) {
        if self.reports && !(self.segments_are_recorded && is_of_segment(action)) {
            super::caller::report(action, self.id, place.0, address, size);
        }
        if self.history.enabled {
            self.keep(action, address, size, place, context);
        }
    }

    #[inline(never)]
    fn keep(
        &mut self,
        action: Action,
        address: u64,
        size: u64,
        (stream, pool): (StreamId, PoolId),
        context: Caller,
    ) {
        let Caller { stack, scope } = context;
        // Blocks keep theirs in any case.
        let stack = if self.history.stacks >= Context::Alloc { stack } else { StackId::NONE };
        let (pool, time_ns) = (self.pool(pool).owner, super::caller::ticks());
        self.history.push(TraceEntry { time_ns, address, size, stream, pool, stack, scope, action });
    }

    /// Where events about a block belong.
    #[inline]
    pub(super) fn place(block: &Block) -> (StreamId, PoolId) {
        (block.stream, block.pool)
    }
}
