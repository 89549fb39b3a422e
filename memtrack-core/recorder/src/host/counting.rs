//! Counts a small block that is not recorded: nearly all that memtrack does for a program whose blocks are sampled. What it
//! needs of the thread lies in one cache line with the thread's sums ([`ThreadState`](crate::recorder::ThreadState)), and of the
//! session's settings the thread has a copy there, so that nothing else is read but the block's place in [`followed`].

use super::followed;
use crate::recorder::{sample_threshold_bytes, session_number};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};

/// A thread's countdown to its next sample. Only the owner writes it, but for `forget`.
#[derive(Debug, Default)]
pub struct Counting {
    /// Blocks below this size are small, so that they may be only counted; 0: the thread must look the settings up. Never
    /// another value while `followed` is null.
    small_below: AtomicU64,
    /// Bytes until the next block is picked.
    left: AtomicI64,
    /// What a block counts for beside its bytes.
    block_bytes: AtomicU64,
    /// The counts of followed blocks; null: the thread does not know them.
    followed: AtomicPtr<AtomicU8>,
}

impl Counting {
    /// Bytes until the next block is picked.
    #[inline(always)]
    pub(super) fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// So many bytes are left.
    #[inline(always)]
    pub(super) fn set_left(&self, bytes: i64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// What is left after a block of `size_bytes`: it is picked where that is not above 0.
    #[inline(always)]
    pub(super) fn left_after(&self, size_bytes: u64) -> i64 {
        self.left() - self.counts_for(size_bytes)
    }

    /// What a block of `size_bytes` takes off the countdown.
    #[inline(always)]
    fn counts_for(&self, size_bytes: u64) -> i64 {
        (size_bytes + self.block_bytes.load(Ordering::Relaxed)) as i64
    }

    /// What a block counts for beside its bytes.
    #[cfg(test)]
    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes.load(Ordering::Relaxed)
    }

    /// A block counts for so much beside its bytes.
    pub(super) fn set_block_bytes(&self, bytes: u64) {
        self.block_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether a block that was handed out is small and not picked: then it is off the countdown.
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

    /// Whether a block that is given back is known to be small and not in the live table.
    #[inline(always)]
    pub(super) fn is_not_followed(&self, address: u64, size_bytes: u64) -> bool {
        if size_bytes >= self.small_below.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: from `followed::shared`, and not null, or no block would be small.
        unsafe { !followed::may_be_in(self.followed.load(Ordering::Relaxed), address) }
    }

    /// The thread looks up the settings of `session`, which is the one that it has read before. For the owner.
    pub(super) fn keep_up(&self, session: u64) {
        let counts = followed::shared();
        if counts.is_null() {
            // The slow way knows what to do without.
            return self.forget();
        }
        self.followed.store(counts, Ordering::Relaxed);
        // A signal's handler sees both.
        self.small_below.store(sample_threshold_bytes(), Ordering::Release);
        // Another session may have begun meanwhile: either it is seen here, or its `forget` comes after this store.
        fence(Ordering::SeqCst);
        if session_number() != session {
            self.forget();
        }
    }

    /// The thread looks the settings up before it counts another block. For whoever begins a session, too.
    pub(crate) fn forget(&self) {
        self.small_below.store(0, Ordering::Relaxed);
    }
}
