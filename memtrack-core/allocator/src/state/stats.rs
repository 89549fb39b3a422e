//! Statistics. Every change is counted both in the total and for the kind of pool that it affects.

use memtrack_model::snapshot::pytorch::{MempoolId, PoolKind};
use std::collections::BTreeMap;

/// A statistic: a value that increases and decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The current value.
    pub current: i64,
    /// The highest value so far.
    pub peak: i64,
    /// The sum of all increases.
    pub allocated: i64,
    /// The sum of all decreases.
    pub freed: i64,
}

impl Stat {
    /// Increases the value by `amount`.
    #[inline]
    pub(crate) fn increase(&mut self, amount: u64) {
        self.current += amount as i64;
        self.peak = self.peak.max(self.current);
        self.allocated += amount as i64;
    }

    /// Decreases the value by `amount`.
    #[inline]
    pub(crate) fn decrease(&mut self, amount: u64) {
        self.current -= amount as i64;
        self.freed += amount as i64;
    }

    /// Changes the value by `amount`.
    #[inline]
    fn change(&mut self, amount: i64) {
        if amount >= 0 {
            self.increase(amount as u64);
        } else {
            self.decrease(amount.unsigned_abs());
        }
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// A statistic for all memory and for each kind of pool separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatArray {
    /// The statistic for all memory.
    pub all: Stat,
    /// The statistic for small pools.
    pub small_pool: Stat,
    /// The statistic for large pools.
    pub large_pool: Stat,
}

impl StatArray {
    #[inline]
    fn kind(&mut self, kind: PoolKind) -> &mut Stat {
        match kind {
            PoolKind::Small => &mut self.small_pool,
            PoolKind::Large => &mut self.large_pool,
        }
    }

    #[inline]
    pub(crate) fn increase(&mut self, kind: PoolKind, amount: u64) {
        self.all.increase(amount);
        self.kind(kind).increase(amount);
    }

    #[inline]
    pub(crate) fn decrease(&mut self, kind: PoolKind, amount: u64) {
        self.all.decrease(amount);
        self.kind(kind).decrease(amount);
    }

    #[inline]
    pub(crate) fn change(&mut self, kind: PoolKind, amount: i64) {
        self.all.change(amount);
        self.kind(kind).change(amount);
    }

    fn stats_mut(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool]
    }
}

/// All statistics of one device, under PyTorch's names. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// The number of allocated blocks.
    pub allocation: StatArray,
    /// The number of segments reserved from the device. Mapped pages are not counted.
    pub segment: StatArray,
    /// The number of active blocks: those that are allocated, or were freed while other streams still use them.
    pub active: StatArray,
    /// The number of free blocks that cannot be released because other blocks in their segment are live.
    pub inactive_split: StatArray,
    /// The number of bytes in allocated blocks.
    pub allocated_bytes: StatArray,
    /// The number of bytes reserved from the device.
    pub reserved_bytes: StatArray,
    /// The number of bytes in active blocks.
    pub active_bytes: StatArray,
    /// The number of bytes in the blocks that [`Self::inactive_split`] counts.
    pub inactive_split_bytes: StatArray,
    /// The number of bytes that were requested for active blocks.
    pub requested_bytes: StatArray,
    /// The number of allocated blocks of at least `max_split_size` bytes.
    pub oversize_allocations: Stat,
    /// The number of segments of at least `max_split_size` bytes.
    pub oversize_segments: Stat,
    /// The number of times that an allocation was retried after the cache was emptied.
    pub num_alloc_retries: i64,
    /// The number of times that memory ran out.
    pub num_ooms: i64,
    /// The number of times that the allocator waited for all streams.
    pub num_sync_all_streams: i64,
    /// The number of times that memory was reserved from the device.
    pub num_device_alloc: i64,
    /// The number of times that memory was released to the device.
    pub num_device_free: i64,
    /// The number of requests that `throw_on_cudamalloc_oom` rejected.
    pub num_oom_rejections: i64,
    /// The value of `max_split_size` when the allocator was created, in bytes; −1 means no limit.
    pub max_split_size: i64,
    /// The number of bytes reserved by private pools, by id. Pools stay listed after they are removed.
    pub reserved_bytes_by_private_pools: BTreeMap<MempoolId, StatArray>,
}

impl DeviceStats {
    /// Returns the arrays with their names, sorted by name.
    pub fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ]
    }

    /// Returns the counters with their names, sorted by name.
    pub fn counters(&self) -> [(&'static str, i64); 7] {
        [
            ("max_split_size", self.max_split_size),
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
        ]
    }

    fn stats_mut(&mut self) -> impl Iterator<Item = &mut Stat> {
        let arrays = [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        arrays
            .into_iter()
            .chain(self.reserved_bytes_by_private_pools.values_mut())
            .flat_map(StatArray::stats_mut)
            .chain([&mut self.oversize_allocations, &mut self.oversize_segments])
    }

    /// Resets every peak to the current value.
    pub(crate) fn reset_peak(&mut self) {
        self.stats_mut().for_each(Stat::reset_peak);
    }

    /// Resets sums and counters to 0.
    pub(crate) fn reset_accumulated(&mut self) {
        self.stats_mut().for_each(Stat::reset_accumulated);
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }
}
