//! Exact sums per thread and device. Only the owning thread writes its sums (with a plain load and store, not a locked
//! instruction); any thread may add them up.

use memtrack_model::snapshot::Sampling;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! sums {
    ($($(#[$doc:meta])* $visibility:vis $sum:ident,)*) => {
        /// One thread's sums for one device since the thread's state was created; they only grow.
        #[derive(Default)]
        #[repr(C)]
        pub struct Totals {
            $($sum: AtomicU64,)*
            /// The part of the allocated bytes and allocations that was already added to scopes.
            reported: [AtomicU64; 2],
        }

        /// Sums over threads, or differences of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sums {
            $($(#[$doc])* $visibility $sum: u64,)*
        }

        impl Totals {
            /// Creates sums of 0.
            pub(super) const fn new() -> Self {
                Self { $($sum: AtomicU64::new(0),)* reported: [const { AtomicU64::new(0) }; 2] }
            }

            /// Returns all sums except `reported`.
            fn counters(&self) -> [&AtomicU64; [$(stringify!($sum)),*].len()] {
                [$(&self.$sum),*]
            }

            /// Adds this thread's sums to `sums`.
            pub(crate) fn add_to(&self, sums: &mut Sums) {
                $(sums.$sum = sums.$sum.wrapping_add(self.$sum.load(Ordering::Relaxed));)*
            }
        }

        impl Sums {
            /// Returns the growth since `before`.
            pub fn since(&self, before: &Self) -> Self {
                Self { $($sum: self.$sum.wrapping_sub(before.$sum),)* }
            }
        }
    };
}

sums! {
    // The four sums that every block changes come first, next to each other.
    pub(crate) allocated_bytes,
    pub(crate) allocations,
    pub(crate) freed_bytes,
    pub(crate) frees,
    /// The allocated blocks and bytes that were added to the live table.
    pub(crate) tracked,
    pub(crate) tracked_bytes,
    pub(crate) segment_bytes,
    pub(crate) freed_segment_bytes,
    /// The bytes of blocks whose free was requested.
    pub(crate) pending_bytes,
    /// The bytes of blocks whose requested free is complete.
    pub(crate) completed_bytes,
    /// The number of recorded events.
    pub recorded,
}

/// Adds without a locked instruction, which is correct because only the owning thread writes.
#[inline(always)]
fn add(sum: &AtomicU64, value: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

impl Totals {
    /// The size of the sums that every block changes.
    #[cfg(test)]
    pub(super) const TOUCHED_BY_EACH_BLOCK: usize =
        std::mem::offset_of!(Self, frees) + size_of::<AtomicU64>();

    /// Adds the sums of another state. Only the single writer of these sums may call this.
    pub(super) fn absorb(&self, others: &Self) {
        let pairs = self.counters().into_iter().zip(others.counters());
        pairs.for_each(|(sum, other)| add(sum, other.load(Ordering::Relaxed)));
    }

    /// Subtracts the sums of another state. Only the single writer of these sums may call this.
    pub(super) fn subtract(&self, others: &Self) {
        let pairs = self.counters().into_iter().zip(others.counters());
        pairs.for_each(|(sum, other)| add(sum, other.load(Ordering::Relaxed).wrapping_neg()));
    }

    /// Sets all sums to 0.
    pub(super) fn reset(&self) {
        self.counters().into_iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    }

    /// Counts an allocation.
    #[inline(always)]
    pub(crate) fn count_alloc(&self, size_bytes: u64) {
        add(&self.allocated_bytes, size_bytes);
        add(&self.allocations, 1);
    }

    /// Counts a block that was added to the live table.
    #[inline(always)]
    pub(crate) fn count_tracked(&self, size_bytes: u64) {
        add(&self.tracked, 1);
        add(&self.tracked_bytes, size_bytes);
    }

    /// Returns the number of allocations so far.
    #[inline(always)]
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Returns the bytes allocated so far.
    #[inline(always)]
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes freed so far.
    #[inline(always)]
    pub(super) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) fn count_free(&self, size_bytes: u64) {
        add(&self.freed_bytes, size_bytes);
        add(&self.frees, 1);
    }

    /// Returns the bytes and blocks that were allocated since the last addition to scopes.
    #[inline(always)]
    pub(crate) fn growth(&self) -> [u64; 2] {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let [bytes, blocks] = [&self.allocated_bytes, &self.allocations].map(get);
        [bytes.wrapping_sub(get(&self.reported[0])), blocks.wrapping_sub(get(&self.reported[1]))]
    }

    /// Notes that these bytes and blocks, which may be negative (wrapped), were added to scopes. Only the owning thread
    /// may call this, or any thread while nothing is recorded.
    #[inline(always)]
    pub(crate) fn report_growth(&self, [bytes, blocks]: [u64; 2]) {
        add(&self.reported[0], bytes);
        add(&self.reported[1], blocks);
    }

    /// Subtracts a counted allocation that turned out not to be an allocation.
    pub(crate) fn uncount_alloc(&self, size_bytes: u64) {
        add(&self.allocated_bytes, size_bytes.wrapping_neg());
        add(&self.allocations, 1_u64.wrapping_neg());
    }

    /// Counts a segment that was allocated or pages that were mapped.
    pub(crate) fn count_segment(&self, size_bytes: u64) {
        add(&self.segment_bytes, size_bytes);
    }

    /// Counts a segment that was freed or pages that were unmapped.
    pub(crate) fn count_segment_free(&self, size_bytes: u64) {
        add(&self.freed_segment_bytes, size_bytes);
    }

    /// Counts a free that was requested but is not complete.
    pub(crate) fn count_pending(&self, size_bytes: u64) {
        add(&self.pending_bytes, size_bytes);
    }

    /// Counts a requested free that completed.
    pub(crate) fn count_completed(&self, size_bytes: u64) {
        add(&self.completed_bytes, size_bytes);
    }

    /// Counts an event written to the thread's chunk.
    #[inline(always)]
    pub(crate) fn count_recorded(&self) {
        add(&self.recorded, 1);
    }
}

impl Sums {
    /// Returns the numbers of blocks and bytes that were counted but not recorded.
    pub fn unrecorded(&self) -> Sampling {
        Sampling {
            unrecorded_blocks: self.allocations.saturating_sub(self.tracked),
            unrecorded_bytes: self.allocated_bytes.saturating_sub(self.tracked_bytes),
            ..Sampling::default()
        }
    }

    /// Returns the live bytes: negative if more was freed than allocated.
    pub fn allocated(&self) -> i64 {
        self.allocated_bytes.wrapping_sub(self.freed_bytes) as i64
    }

    /// Returns the bytes that are live or waiting for their free to complete.
    pub fn active(&self) -> i64 {
        self.allocated() + self.pending_bytes.wrapping_sub(self.completed_bytes) as i64
    }

    /// Returns the bytes of allocated segments.
    pub fn reserved(&self) -> i64 {
        self.segment_bytes.wrapping_sub(self.freed_segment_bytes) as i64
    }
}
