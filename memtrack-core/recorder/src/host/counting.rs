//! Counts small blocks that are not recorded, which is nearly all of memtrack's work for a program whose blocks are
//! sampled. The per-thread state for this shares a cache line with the thread's sums
//! (`ThreadState`) and contains a copy of the session's settings, so that the only other
//! memory read is the block's slot in [`live_filter`].

use super::live_filter;
use crate::settings;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, Ordering, fence};

/// A thread's countdown to its next sample, and its copy of the settings. Only the owning thread writes it, except in
/// `invalidate`.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Countdown {
    /// Blocks below this size are small and may be only counted. If it is 0, the thread must read the settings; always
    /// 0 while `filter` is null.
    small_below: AtomicU32,
    /// The bytes that each block counts for in addition to its size.
    block_bytes: AtomicU32,
    /// The bytes until the next block is sampled.
    left: AtomicI64,
    /// The counts of the live filter; null if the thread has not read the pointer yet.
    filter: AtomicPtr<AtomicU8>,
}

impl Countdown {
    /// Returns the number of bytes until the next block is sampled.
    #[inline(always)]
    pub(crate) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes until the next block is sampled.
    #[inline(always)]
    pub(crate) fn set_left(&self, bytes: i64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Returns the rest of the countdown after a block of `size_bytes`. The block is sampled if the result is not
    /// positive.
    #[inline(always)]
    pub(crate) fn left_after(&self, size_bytes: u64) -> i64 {
        self.left() - self.countdown_bytes(size_bytes)
    }

    /// Returns the number of bytes by which a block of `size_bytes` reduces the countdown.
    #[inline(always)]
    fn countdown_bytes(&self, size_bytes: u64) -> i64 {
        (size_bytes + self.block_bytes()) as i64
    }

    /// Returns the bytes that each block counts for in addition to its size.
    #[inline(always)]
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.block_bytes.load(Ordering::Relaxed))
    }

    /// Sets the number of bytes that each block counts for in addition to its size.
    pub(crate) fn set_block_bytes(&self, bytes: u64) {
        self.block_bytes.store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Returns whether a block is certainly small. False if the thread must read the settings.
    #[inline(always)]
    pub(crate) fn is_small(&self, size_bytes: u64) -> bool {
        size_bytes < u64::from(self.small_below.load(Ordering::Relaxed))
    }

    /// Returns whether an allocated block is small and not sampled. If so, the countdown is reduced.
    #[inline(always)]
    pub(crate) fn is_skipped(&self, size_bytes: u64) -> bool {
        if !self.is_small(size_bytes) {
            return false;
        }
        let (left, bytes) = (self.left(), self.countdown_bytes(size_bytes));
        let is_skipped = left > bytes;
        if is_skipped {
            self.set_left(left - bytes);
        }
        is_skipped
    }

    /// Returns whether a freed block is certainly small and not in the live table.
    #[inline(always)]
    pub(crate) fn is_certainly_untracked(&self, address: u64, size_bytes: u64) -> bool {
        if !self.is_small(size_bytes) {
            return false;
        }
        // SAFETY: the pointer is from `live_filter::shared` and is not null, because no block counts as small while it
        // is null.
        unsafe { !live_filter::may_be_in(self.filter.load(Ordering::Relaxed), address) }
    }

    /// Reads the settings of `session`, whose number the caller has already read. Only the owning thread may call this.
    pub(crate) fn refresh(&self, session: u64) {
        let counts = live_filter::shared();
        if counts.is_null() {
            // Without the counts, the thread always takes the slow path.
            return self.invalidate();
        }
        self.filter.store(counts, Ordering::Relaxed);
        // Released so that a signal handler that reads the new value also reads the new filter. A threshold that does
        // not fit in 32 bits is applied by the slow path.
        let small_below = u32::try_from(settings::sample_threshold_bytes()).unwrap_or(u32::MAX);
        self.small_below.store(small_below, Ordering::Release);
        // Another session may have begun meanwhile: either its number is read here, or its call of `invalidate` comes
        // after this store.
        fence(Ordering::SeqCst);
        if settings::session() != session {
            self.invalidate();
        }
    }

    /// Makes the thread read the settings before it counts another block. Any thread may call this.
    pub(crate) fn invalidate(&self) {
        self.small_below.store(0, Ordering::Relaxed);
    }
}
