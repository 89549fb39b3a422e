//! The allocator for one device: its state, and code shared by all operations. The operations themselves are
//! in `steps`.

use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::recorder::{self, Caller};
use crate::settings::{AllocatorOptions, Settings};
use crate::state::blocks::{Block, BlockId, Blocks, LiveBlocks, PoolId, Ranges};
use crate::state::history::{History, TraceEntry};
use crate::state::pending_frees::{DeferredFrees, EventQueues};
use crate::state::pools::Pool;
use crate::state::private_pools::PrivatePools;
use crate::state::stats::DeviceStats;
use memtrack_model::event::{Action, DeviceId, StackId, StreamId};
use memtrack_model::options::Context;

/// One device. All methods must be called with the device's lock held.
#[derive(Debug)]
pub(crate) struct Device<M: DeviceMemory> {
    pub(crate) id: DeviceId,
    pub(crate) options: AllocatorOptions,
    pub(crate) total_memory: u64,
    /// The maximum number of bytes that may be reserved from the device; `None` means no limit.
    pub(crate) limit: Option<u64>,
    /// The number of bytes currently reserved from the device.
    pub(crate) reserved: u64,
    pub(crate) blocks: Blocks,
    pub(crate) pools: Vec<Pool>,
    pub(crate) private: PrivatePools,
    pub(crate) ranges: Ranges,
    pub(crate) events: EventQueues<M::Event>,
    pub(crate) deferred: DeferredFrees,
    pub(crate) live: LiveBlocks,
    pub(crate) stats: DeviceStats,
    pub(crate) history: History,
    /// Whether events are also reported to memtrack's recorder.
    pub(crate) reports: bool,
    segments_created: u32,
    /// Whether memtrack's driver hook records segments. If it does, they are not reported here.
    segments_are_recorded: bool,
    /// This is the last field so that it is dropped last, because events need the context that `memory` keeps alive.
    pub(crate) memory: M,
}

fn is_segment_action(action: Action) -> bool {
    use Action::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
    matches!(action, SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap)
}

impl<M: DeviceMemory> Device<M> {
    pub(crate) fn new(id: DeviceId, memory: M, settings: &Settings) -> Result<Self, AllocatorError> {
        let total_memory = memory.memory_info()?.total_bytes;
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
            reserved: 0,
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
            segments_created: 0,
        };
        device.set_fraction(settings.initial_fraction());
        Ok(device)
    }

    #[inline]
    pub(crate) fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0 as usize]
    }

    #[inline]
    pub(crate) fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    /// Adds a free block to its pool's free blocks.
    #[inline(always)]
    pub(crate) fn add_to_cache(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.pools[block.pool.0 as usize].insert(id, block);
    }

    /// Removes a block from its pool's free or unmapped blocks.
    #[inline(always)]
    pub(crate) fn remove_from_cache(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool.0 as usize].remove(block);
    }

    /// Returns the number of a new segment in creation order.
    pub(crate) fn take_next_age(&mut self) -> u32 {
        self.segments_created = self.segments_created.checked_add(1).expect("more than 4 G segments");
        self.segments_created
    }

    /// Sets the share of the device's memory that may be used, from 0 to 1. As in PyTorch, the limit is rounded
    /// to the nearest number of bytes: 0.58 of 100 MiB is 58 MiB, although the product is slightly less.
    pub(crate) fn set_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then_some((fraction * self.total_memory as f64).round() as u64);
    }

    /// Counts memory that was reserved from the device or released to it.
    pub(crate) fn count_reserved(&mut self, pool: PoolId, change: i64) {
        self.reserved = self.reserved.wrapping_add_signed(change);
        self.stats.reserved_bytes.change(pool.kind(), change);
        if !pool.is_default() {
            let owner = self.pool(pool).owner;
            let private = self.stats.reserved_bytes_by_private_pools.entry(owner).or_default();
            private.change(pool.kind(), change);
        }
    }

    /// Records an event for a block or segment.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        action: Action,
        address: u64,
        size: u64,
        place: (StreamId, PoolId),
        context: Caller,
    ) {
        if self.reports && !(self.segments_are_recorded && is_segment_action(action)) {
            recorder::report(action, self.id, place.0, address, size);
        }
        if self.history.enabled {
            self.add_to_history(action, address, size, place, context);
        }
    }

    #[inline(never)]
    fn add_to_history(
        &mut self,
        action: Action,
        address: u64,
        size: u64,
        (stream, pool): (StreamId, PoolId),
        context: Caller,
    ) {
        let Caller { stack, scope } = context;
        // The event has no stack unless the options require one. Blocks keep their stacks in any case.
        let stack = if self.history.stacks >= Context::Alloc { stack } else { StackId::NONE };
        let (pool, time_ns) = (self.pool(pool).owner, recorder::ticks());
        self.history.push(TraceEntry { time_ns, address, size, stream, pool, stack, scope, action });
    }

    /// Returns the stream and the pool for events about a block.
    #[inline]
    pub(crate) fn stream_and_pool(block: &Block) -> (StreamId, PoolId) {
        (block.stream, block.pool)
    }
}
