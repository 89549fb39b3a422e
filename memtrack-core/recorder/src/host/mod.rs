//! The host heap as a source of events: [`TrackingAllocator`] wraps the program's global allocator. All blocks of at
//! least the threshold (64 KiB by default) are recorded. Smaller blocks are recorded too while a budget of processor
//! time allows it, and are otherwise sampled by bytes. The sums over all blocks are exact in either case.
//!
//! **What are "allocated" and "reserved" on a heap?** Allocated and active memory are the bytes allocated since
//! monitoring began minus those freed, so both fall below zero when older memory is freed. Reserved memory is the
//! resident set.
//!
//! The path of a block: [`allocator`](crate::allocator) is the program's global allocator, `fast` counts blocks that are not sampled, and
//! `record` samples or records the others. `sampler` picks the small blocks to record at the rate that `budget` allows;
//! `counting` is its countdown.
#![allow(unsafe_code)]

mod budget;
pub(crate) mod counted_peak;
mod counting;
mod cpu_time;
mod fast;
mod live_filter;
mod record;
pub mod reserve;
mod resident;
mod sampler;
mod transferred;

/// The size in bytes of the filter that marks which small blocks are in the live table.
#[cfg(test)]
pub(crate) const LIVE_FILTER_BYTES: usize = live_filter::BYTES;
/// The size in bytes of the table of blocks that were transferred to the program.
#[cfg(test)]
pub(crate) const TRANSFERRED_BYTES: usize = transferred::BYTES;

pub use crate::allocator::{TrackingAllocator, internal_heap_bytes, own_bytes};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use budget::grant_python_loan;
#[cfg(target_os = "linux")]
pub(crate) use budget::min_class;
pub use budget::{sample_block_bytes, so_far as sampling_so_far};
pub use counting::Countdown;
pub(crate) use fast::count_free;
pub use fast::{count_alloc, count_untracked_free};
pub use record::{after_alloc, before_free, record_realloc};
pub(crate) use record::{record_alloc, record_free};
pub use resident::{recent_resident_bytes, resident_bytes};
pub(crate) use sampler::Sampler;
pub use sampler::{Rules, StandaloneSampler};
pub use transferred::allocate_for_program;

use crate::reentry;
use memtrack_model::event::DeviceId;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const HOST: DeviceId = DeviceId::HOST;
/// The index of the host heap in a thread's sums, which are stored by device slot.
const HOST_SLOT: usize = 0;

/// The bytes of the tracked heap that memtrack itself allocated minus those it freed, both while monitoring was on.
pub(crate) static INTERNAL_HEAP_BYTES: AtomicI64 = AtomicI64::new(0);
static WAS_CALLED: AtomicBool = AtomicBool::new(false);

/// Reports that the heap refused a request by printing what holds the memory, if the session's options request it. Must
/// be called outside hooks, while none of memtrack's locks is held.
#[cold]
pub fn report_refusal(size_bytes: usize) {
    crate::events::report_heap_refusal(size_bytes as u64);
}

/// Returns whether the program's global allocator is a [`TrackingAllocator`]. This is tested with an allocation, so
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
    counted_peak::clear();
}

/// Resets the heap's state in a forked child, because tables and sums belong to the parent.
pub(crate) fn reset_after_fork() {
    live_filter::reset_after_fork();
    transferred::reset_after_fork();
    counted_peak::clear();
}

/// Notes that the program's global allocator is a [`TrackingAllocator`].
pub(crate) fn note_call() {
    if !WAS_CALLED.load(Ordering::Relaxed) {
        WAS_CALLED.store(true, Ordering::Relaxed);
    }
}

/// Counts bytes that memtrack itself allocated or, if negative, freed.
#[cold]
fn count_internal(bytes: i64) {
    WAS_CALLED.store(true, Ordering::Relaxed);
    INTERNAL_HEAP_BYTES.fetch_add(bytes, Ordering::Relaxed);
}
