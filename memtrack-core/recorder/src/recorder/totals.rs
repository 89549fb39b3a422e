//! Exact sums per thread and device. Only the owning thread writes them (a plain load and store, no locked
//! instruction); anyone may add them up.

use std::sync::atomic::{AtomicU64, Ordering};

/// One thread's sums for one device since the thread's state was made; they only grow.
#[derive(Default)]
#[repr(C)]
pub struct Totals {
    // The four that every block touches, beside each other.
    allocated_bytes: AtomicU64,
    allocations: AtomicU64,
    freed_bytes: AtomicU64,
    frees: AtomicU64,
    followed: AtomicU64,
    followed_bytes: AtomicU64,
    segment_bytes: AtomicU64,
    freed_segment_bytes: AtomicU64,
    pending_bytes: AtomicU64,
    completed_bytes: AtomicU64,
    recorded: AtomicU64,
    /// Of the allocated bytes and allocations, those that scopes were told of.
    told: [AtomicU64; 2],
}

/// Sums over threads, or differences of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub(crate) allocated_bytes: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) allocations: u64,
    /// Of the blocks and bytes handed out, those that the live table followed.
    pub(crate) followed: u64,
    pub(crate) followed_bytes: u64,
    pub(crate) frees: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) freed_segment_bytes: u64,
    /// Bytes whose free was requested.
    pub(crate) pending_bytes: u64,
    /// Bytes whose requested free completed.
    pub(crate) completed_bytes: u64,
    /// Events recorded.
    pub recorded: u64,
}

/// Adds without a locked instruction: right because only the owner writes.
#[inline(always)]
fn add(sum: &AtomicU64, value: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

impl Totals {
    /// Where the sums end that every block touches.
    #[cfg(test)]
    pub(super) const TOUCHED_BY_EACH_BLOCK: usize =
        std::mem::offset_of!(Self, frees) + size_of::<AtomicU64>();

    /// Nothing yet.
    pub(super) const fn new() -> Self {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Self {
            allocated_bytes: zero(),
            freed_bytes: zero(),
            allocations: zero(),
            followed: zero(),
            followed_bytes: zero(),
            frees: zero(),
            segment_bytes: zero(),
            freed_segment_bytes: zero(),
            pending_bytes: zero(),
            completed_bytes: zero(),
            recorded: zero(),
            told: [zero(), zero()],
        }
    }

    /// All sums; not what scopes were told.
    fn all(&self) -> [&AtomicU64; 11] {
        [
            &self.allocated_bytes,
            &self.freed_bytes,
            &self.allocations,
            &self.followed,
            &self.followed_bytes,
            &self.frees,
            &self.segment_bytes,
            &self.freed_segment_bytes,
            &self.pending_bytes,
            &self.completed_bytes,
            &self.recorded,
        ]
    }

    /// Another's sums are in these from now on. For who alone writes these.
    pub(super) fn take_in(&self, others: &Self) {
        let pairs = self.all().into_iter().zip(others.all());
        pairs.for_each(|(sum, other)| add(sum, other.load(Ordering::Relaxed)));
    }

    /// Another's sums are in these no longer. For who alone writes these.
    pub(super) fn let_go(&self, others: &Self) {
        let pairs = self.all().into_iter().zip(others.all());
        pairs.for_each(|(sum, other)| add(sum, other.load(Ordering::Relaxed).wrapping_neg()));
    }

    /// Nothing any more.
    pub(super) fn reset(&self) {
        self.all().into_iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    }

    /// A block was handed out.
    #[inline(always)]
    pub(crate) fn count_alloc(&self, size_bytes: u64) {
        add(&self.allocated_bytes, size_bytes);
        add(&self.allocations, 1);
    }

    /// A block that was counted went into the live table.
    #[inline(always)]
    pub(crate) fn count_followed(&self, size_bytes: u64) {
        add(&self.followed, 1);
        add(&self.followed_bytes, size_bytes);
    }

    /// Blocks handed out so far.
    #[inline(always)]
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Bytes handed out so far.
    #[inline(always)]
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Bytes given back so far.
    #[inline(always)]
    pub(super) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// A block was given back.
    #[inline(always)]
    pub(crate) fn count_free(&self, size_bytes: u64) {
        add(&self.freed_bytes, size_bytes);
        add(&self.frees, 1);
    }

    /// What was allocated, in bytes and blocks, that scopes were not told of yet.
    #[inline(always)]
    pub(crate) fn growth(&self) -> [u64; 2] {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let [bytes, blocks] = [&self.allocated_bytes, &self.allocations].map(get);
        [bytes.wrapping_sub(get(&self.told[0])), blocks.wrapping_sub(get(&self.told[1]))]
    }

    /// Scopes were told of so much more, or less. For the owner; for others while nothing is recorded.
    #[inline(always)]
    pub(crate) fn told_too(&self, [bytes, blocks]: [u64; 2]) {
        add(&self.told[0], bytes);
        add(&self.told[1], blocks);
    }

    /// A block that was counted never was one.
    pub(crate) fn uncount_alloc(&self, size_bytes: u64) {
        add(&self.allocated_bytes, size_bytes.wrapping_neg());
        add(&self.allocations, 1_u64.wrapping_neg());
    }

    /// A segment was taken or pages were mapped.
    pub(crate) fn count_segment(&self, size_bytes: u64) {
        add(&self.segment_bytes, size_bytes);
    }

    /// A segment was given back or pages were unmapped.
    pub(crate) fn count_segment_free(&self, size_bytes: u64) {
        add(&self.freed_segment_bytes, size_bytes);
    }

    /// A free was requested that is not complete.
    pub(crate) fn count_pending(&self, size_bytes: u64) {
        add(&self.pending_bytes, size_bytes);
    }

    /// A requested free completed.
    pub(crate) fn count_completed(&self, size_bytes: u64) {
        add(&self.completed_bytes, size_bytes);
    }

    /// An event was written to the thread's chunk.
    #[inline(always)]
    pub(crate) fn count_recorded(&self) {
        add(&self.recorded, 1);
    }

    /// Adds this thread's sums to `sums`.
    pub(crate) fn add_to(&self, sums: &mut Sums) {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        sums.allocated_bytes = sums.allocated_bytes.wrapping_add(get(&self.allocated_bytes));
        sums.freed_bytes = sums.freed_bytes.wrapping_add(get(&self.freed_bytes));
        sums.allocations = sums.allocations.wrapping_add(get(&self.allocations));
        sums.followed = sums.followed.wrapping_add(get(&self.followed));
        sums.followed_bytes = sums.followed_bytes.wrapping_add(get(&self.followed_bytes));
        sums.frees = sums.frees.wrapping_add(get(&self.frees));
        sums.segment_bytes = sums.segment_bytes.wrapping_add(get(&self.segment_bytes));
        sums.freed_segment_bytes = sums.freed_segment_bytes.wrapping_add(get(&self.freed_segment_bytes));
        sums.pending_bytes = sums.pending_bytes.wrapping_add(get(&self.pending_bytes));
        sums.completed_bytes = sums.completed_bytes.wrapping_add(get(&self.completed_bytes));
        sums.recorded = sums.recorded.wrapping_add(get(&self.recorded));
    }
}

impl Sums {
    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            allocated_bytes: self.allocated_bytes.wrapping_sub(before.allocated_bytes),
            freed_bytes: self.freed_bytes.wrapping_sub(before.freed_bytes),
            allocations: self.allocations.wrapping_sub(before.allocations),
            followed: self.followed.wrapping_sub(before.followed),
            followed_bytes: self.followed_bytes.wrapping_sub(before.followed_bytes),
            frees: self.frees.wrapping_sub(before.frees),
            segment_bytes: self.segment_bytes.wrapping_sub(before.segment_bytes),
            freed_segment_bytes: self.freed_segment_bytes.wrapping_sub(before.freed_segment_bytes),
            pending_bytes: self.pending_bytes.wrapping_sub(before.pending_bytes),
            completed_bytes: self.completed_bytes.wrapping_sub(before.completed_bytes),
            recorded: self.recorded.wrapping_sub(before.recorded),
        }
    }

    /// Bytes out now: negative when more was given back than handed out since the start.
    pub fn allocated(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes) as i64
    }

    /// Bytes out or waiting for their free to complete.
    pub fn active(&self) -> i64 {
        self.allocated() + self.pending_bytes.wrapping_sub(self.completed_bytes) as i64
    }

    /// Bytes of segments held.
    pub fn reserved(&self) -> i64 {
        self.segment_bytes.wrapping_sub(self.freed_segment_bytes) as i64
    }
}
