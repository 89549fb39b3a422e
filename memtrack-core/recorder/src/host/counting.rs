//! Counts small blocks that are not recorded: nearly all of memtrack's work for a program whose blocks are sampled.
//! The thread's part lies in one cache line with the thread's sums ([`ThreadState`](crate::events::ThreadState))
//! and holds a copy of the session's settings, so that the only other memory read is the block's slot in
//! [`live_filter`].

use super::live_filter;
use crate::events::{sample_threshold_bytes, session_number};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};

/// A thread's countdown to its next sample. Only the owning thread writes it, except for `forget`.
#[derive(Debug, Default)]
pub struct Counting {
    /// Blocks below this size are small and may be only counted; 0: the thread must read the settings. Always 0 while
    /// `filter` is null.
    small_below: AtomicU64,
    /// Bytes until the next block is picked.
    left: AtomicI64,
    /// The bytes that each block counts for in addition to its size.
    block_bytes: AtomicU64,
    /// The counts of the live filter; null: the thread has not read them yet.
    filter: AtomicPtr<AtomicU8>,
}

impl Counting {
    /// Bytes until the next block is picked.
    #[inline(always)]
    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Sets how many bytes are left.
    #[inline(always)]
    pub(super) fn set_left(&self, bytes: i64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Returns the rest of the countdown after a block of `size_bytes`: the block is picked if that is not above 0.
    #[inline(always)]
    pub(super) fn left_after(&self, size_bytes: u64) -> i64 {
        self.left() - self.counts_for(size_bytes)
    }

    /// Returns the part of the countdown that a block of `size_bytes` takes.
    #[inline(always)]
    fn counts_for(&self, size_bytes: u64) -> i64 {
        (size_bytes + self.block_bytes.load(Ordering::Relaxed)) as i64
    }

    /// Returns the bytes that each block counts for in addition to its size.
    #[cfg(test)]
    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes that each block counts for in addition to its size.
    pub(super) fn set_block_bytes(&self, bytes: u64) {
        self.block_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether an allocated block is small and not picked; if so, it is taken off the countdown.
    #[inline(always)]
    pub(super) fn passes(&self, size_bytes: u64) -> bool {
        if size_bytes >= self.small_below.load(Ordering::Relaxed) {
            return false;
        }
        let (left, taken) = (self.left(), self.counts_for(size_bytes));
        let passes = left > taken;
        if passes {
            self.set_left(left - taken);
        }
        passes
    }

    /// Returns whether a freed block is certainly small and not in the live table.
    #[inline(always)]
    pub(super) fn is_surely_untracked(&self, address: u64, size_bytes: u64) -> bool {
        if size_bytes >= self.small_below.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: from `live_filter::shared`, and not null, since no block is small while it is.
        unsafe { !live_filter::may_be_in(self.filter.load(Ordering::Relaxed), address) }
    }

    /// Reads the settings of `session`, whose number the caller has read before. For the owning thread.
    pub(super) fn refresh(&self, session: u64) {
        let counts = live_filter::shared();
        if counts.is_null() {
            // The slow path works without them.
            return self.forget();
        }
        self.filter.store(counts, Ordering::Relaxed);
        // A signal handler that sees this store sees the one above, too.
        self.small_below.store(sample_threshold_bytes(), Ordering::Release);
        // Another session may have begun meanwhile: either it is seen here, or its `forget` comes after this store.
        fence(Ordering::SeqCst);
        if session_number() != session {
            self.forget();
        }
    }

    /// Makes the thread read the settings before it counts another block. Also called by the thread that begins a
    /// session.
    pub(crate) fn forget(&self) {
        self.small_below.store(0, Ordering::Relaxed);
    }
}
