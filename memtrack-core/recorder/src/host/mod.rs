//! What memtrack knows about the host heap: which of its small blocks are recorded, and which were. The functions that
//! record them are in [`allocator`](crate::allocator), and [`events`](crate::events) keeps what they record: this module
//! depends on neither.
//!
//! All blocks of at least the threshold (64 KiB by default) are recorded. Smaller blocks are recorded too while a budget of
//! processor time allows it (`budget`), and are otherwise sampled by bytes (`sampler`, `counting`). The sums over all blocks
//! are exact in either case. `live_filter` distinguishes small blocks that were recorded, and `transferred` blocks that
//! memtrack allocated for the program. `reserve` is memory for when there is none.
//!
//! **What are "allocated" and "reserved" on a heap?** Allocated and active memory are the bytes allocated since
//! monitoring began minus those freed, so both fall below zero when older memory is freed. Reserved memory is the
//! resident set.
#![allow(unsafe_code)]

mod budget;
mod counting;
pub(crate) mod live_filter;
pub mod reserve;
mod sampler;
pub(crate) mod transferred;

/// The size in bytes of the filter that marks which small blocks are in the live table.
#[cfg(test)]
pub(crate) const LIVE_FILTER_BYTES: usize = live_filter::BYTES;
/// The size in bytes of the table of blocks that were transferred to the program.
#[cfg(test)]
pub(crate) const TRANSFERRED_BYTES: usize = transferred::BYTES;

pub use crate::settings::Rules;
#[cfg(target_arch = "x86_64")]
pub(crate) use budget::grant_python_loan;
pub(crate) use budget::min_class;
pub use budget::sample_block_bytes;
pub(crate) use budget::so_far as sampling_so_far;
pub(crate) use counting::Countdown;
pub use sampler::StandaloneSampler;
pub(crate) use sampler::{Recording, Sampler};
pub use transferred::allocate_for_program;

use crate::reentry;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The index of the host heap in a thread's sums, which are stored by device slot.
pub(crate) const HOST_SLOT: usize = 0;

/// The bytes of the tracked heap that memtrack itself allocated minus those it freed, both while monitoring was on.
pub(crate) static INTERNAL_HEAP_BYTES: AtomicI64 = AtomicI64::new(0);
static WAS_CALLED: AtomicBool = AtomicBool::new(false);

/// Returns whether the program's global allocator is a `TrackingAllocator`. This is tested with an allocation, so
/// recording must be on.
pub fn is_installed() -> bool {
    let _inside = reentry::enter();
    drop(std::hint::black_box(Box::new(0_u8)));
    WAS_CALLED.load(Ordering::Relaxed)
}

/// Resets the heap's state for a new session, in which the live table is empty and no budget has been spent.
pub(crate) fn forget_samples() {
    transferred::clear();
    live_filter::clear();
    budget::begin();
}

/// Resets the heap's state in a forked child, because tables and sums belong to the parent.
pub(crate) fn reset_after_fork() {
    live_filter::reset_after_fork();
    transferred::reset_after_fork();
}

/// Notes that the program's global allocator is a `TrackingAllocator`.
pub(crate) fn note_call() {
    if !WAS_CALLED.load(Ordering::Relaxed) {
        WAS_CALLED.store(true, Ordering::Relaxed);
    }
}

/// Counts bytes that memtrack itself allocated or, if negative, freed.
#[cold]
pub(crate) fn count_internal(bytes: i64) {
    WAS_CALLED.store(true, Ordering::Relaxed);
    INTERNAL_HEAP_BYTES.fetch_add(bytes, Ordering::Relaxed);
}
