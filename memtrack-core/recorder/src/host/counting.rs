//! Counts a small block that is not recorded: nearly all that memtrack does for a program whose blocks are sampled. What it
//! needs of the thread lies in one cache line with the thread's sums ([`ThreadState`](crate::recorder::ThreadState)), and of the
//! session's settings the thread has a copy there, so that nothing else is read but the block's place in [`followed`].

use super::followed;
use crate::recorder::{sample_threshold_bytes, session_number};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};

/// A thread's countdown to its next sample. Only the owner writes it, but for `forget`.
#[derive(Debug, Default)]
pub struct Counting {
    /// Blocks below this size are small, so that they may be only counted; 0: the thread must look the settings up.
    small_below: AtomicU64,
    /// Bytes until the next block is picked.
    left: AtomicI64,
    /// What a block counts for beside its bytes.
    block_bytes: AtomicU64,
    /// The counts of followed blocks; null: the thread must look for them.
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
        self.left() - (size_bytes + self.block_bytes.load(Ordering::Relaxed)) as i64
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
        let left = self.left_after(size_bytes);
        if left > 0 {
            self.set_left(left);
        }
        left > 0
    }

    /// Whether a block that is given back is known to be small and not in the live table.
    #[inline(always)]
    pub(super) fn is_not_followed(&self, address: u64, size_bytes: u64) -> bool {
        if size_bytes >= self.small_below.load(Ordering::Relaxed) {
            return false;
        }
        let counts = self.followed.load(Ordering::Relaxed);
        // SAFETY: null or from `followed::shared`.
        !counts.is_null() && unsafe { !followed::may_be_in(counts, address) }
    }

    /// The thread looks for the counts of followed blocks, which are made with the first one.
    pub(super) fn follow(&self) {
        self.followed.store(followed::shared(), Ordering::Relaxed);
    }

    /// The thread looks up the settings of `session`, which is the one that it has read before. For the owner.
    pub(super) fn keep_up(&self, session: u64) {
        self.follow();
        self.small_below.store(sample_threshold_bytes(), Ordering::Relaxed);
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
