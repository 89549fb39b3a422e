//! The fast path of the host heap: blocks that are only counted in the thread's sums, as nearly all blocks of a sampled
//! program are. These functions are compiled into the allocator's, and save no registers. What they do not count takes
//! the slow path ([`record`](super::record)).

use crate::events::thread_outside_hooks;
use crate::host::HOST_SLOT;

/// Counts an allocated block if it is small and not sampled. Returns whether it was counted, in which case nothing more
/// is needed. Otherwise, [`after_alloc`](super::after_alloc) records it.
#[inline(always)]
pub fn count_alloc(size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(thread) = thread_outside_hooks() else { return false };
    let is_counted = thread.state.countdown.is_skipped(size_bytes);
    if is_counted {
        thread.state.totals(HOST_SLOT).count_alloc(size_bytes);
    }
    is_counted
}

/// Counts the free of a block if the block is small and was not recorded. Returns whether the free was counted, in
/// which case nothing more is needed.
#[inline(always)]
pub(super) fn count_free(block: *mut u8, size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(thread) = thread_outside_hooks() else { return false };
    let is_counted = thread.state.countdown.is_certainly_untracked(block as u64, size_bytes);
    if is_counted {
        thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
    is_counted
}

/// Counts the free of a block that [`count_alloc`] has counted. Returns whether the free was counted, in which case nothing
/// more is needed. Otherwise, [`before_free`](super::before_free) records it.
#[inline(always)]
pub fn count_untracked_free(size: usize) -> bool {
    let size_bytes = size as u64;
    let thread = thread_outside_hooks().filter(|thread| thread.state.countdown.is_small(size_bytes));
    let Some(thread) = thread else { return false };
    thread.state.totals(HOST_SLOT).count_free(size_bytes);
    true
}
