//! The host heap as a source of events: [`TrackingAllocator`] wraps the program's global allocator. All blocks of at
//! least the threshold (64 KiB by default) are recorded. Smaller blocks are recorded too while a budget of processor
//! time allows it, and are otherwise sampled by bytes. The sums over all blocks are exact in either case.
//!
//! **What are "allocated" and "reserved" on a heap?** Allocated and active memory are the bytes allocated since
//! monitoring began minus those freed, so both fall below zero when older memory is freed. Reserved memory is the
//! resident set.
#![allow(unsafe_code)]

mod budget;
pub(crate) mod counted_peak;
mod counting;
mod cpu_time;
mod live_filter;
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

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use budget::grant_python_loan;
#[cfg(target_os = "linux")]
pub(crate) use budget::min_class;
pub use budget::{sample_block_bytes, so_far as sampling_so_far};
pub use counting::Countdown;
pub use resident::{recent_resident_bytes, resident_bytes};
pub(crate) use sampler::Sampler;
pub use sampler::{Rules, StandaloneSampler};
pub use transferred::allocate_for_program;

use crate::events::{
    CurrentThread, Hook, HookContext, is_copy, sample_threshold_bytes, session_number, thread_outside_hooks,
};
use crate::{accounts, reentry, switch};
use memtrack_model::event::{Action, DeviceId, EventFlags, StreamId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const HOST: DeviceId = DeviceId::HOST;
const HEAP: StreamId = StreamId(0);
/// The index of the host heap in a thread's sums, which are stored by device slot.
const HOST_SLOT: usize = 0;

/// The switches that require blocks to be observed. If none of them is on, the fast path suffices.
const ANY_OBSERVER: u32 = switch::HOST | switch::RESERVE | switch::ACCOUNTS;

/// The bytes of the tracked heap that memtrack itself allocated minus those it freed, both while monitoring was on.
static INTERNAL_HEAP_BYTES: AtomicI64 = AtomicI64::new(0);
static WAS_CALLED: AtomicBool = AtomicBool::new(false);

/// A global allocator that wraps another allocator and reports its blocks to the recorder.
///
/// ```
/// use memtrack_core::TrackingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
/// # fn main() {}
/// ```
///
/// To wrap another allocator, use `TrackingAllocator::new(MiMalloc)`.
///
/// # What it does per call
/// While nothing is monitored, a call costs one relaxed load and a branch. While monitoring is on, a block that is only
/// counted updates two of the thread's sums and a countdown. For a recorded block, which is every block while the
/// budget allows it, the allocator captures the stack, updates the live table and writes an event. This takes 0.13 µs
/// with a stack of 46 frames, and 0.08 µs with frame pointers. The allocator never blocks for long, never panics and
/// never records its own allocations.
///
/// # What it does not see
/// It does not see memory that does not come from Rust's global allocator, such as the memory of C libraries, which
/// call `malloc` directly. A block that was allocated before monitoring began is recorded only when it is freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackingAllocator<A = System> {
    inner: A,
}

impl TrackingAllocator<System> {
    /// Wraps the system allocator.
    pub const fn system() -> Self {
        Self { inner: System }
    }
}

impl<A> TrackingAllocator<A> {
    /// Wraps any allocator.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

impl<A: GlobalAlloc> TrackingAllocator<A> {
    /// Allocates a new block and copies the content of `block` to it. `block` stays allocated. Returns null if there is
    /// no memory.
    ///
    /// # Safety
    /// The same as for `realloc`.
    #[cold]
    unsafe fn copy_to_new_block(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is neither zero nor too large for the alignment. Both blocks have
        // at least the bytes that are copied, and they do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
            }
            new
        }
    }
}

// Counting is part of the allocator's own functions, which are compiled with the program. There, accessing a
// thread-local is an offset, whereas in a shared library it is a call. All work beyond counting is in separate
// functions. These are tail-called, with the size and alignment in the order in which an allocator receives them, so
// that the counting path need not save or move registers.
impl<A: GlobalAlloc> TrackingAllocator<A> {
    /// Observes an allocation and returns the block. If the allocation failed and memtrack itself requested it, returns
    /// a block from the reserve.
    #[inline(always)]
    fn observe_alloc(block: *mut u8, size: usize, align: usize) -> *mut u8 {
        let on = switch::all();
        if on & ANY_OBSERVER == 0 {
            return block;
        }
        if on & switch::ACCOUNTS != 0 {
            return observe_alloc_in_account(block, size, align);
        }
        if !block.is_null() && is_counted(size) { block } else { record_or_refuse(block, size, align) }
    }

    /// Reallocates a block and records the free and the allocation.
    ///
    /// # Safety
    /// The same as for `realloc`. In addition, the block must not be from the reserve.
    #[inline(always)]
    unsafe fn realloc_observed(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the requirements of `realloc`.
        let inner = || unsafe { self.inner.realloc(block, layout, new_size) };
        let new = record_realloc(block, layout.size(), || (inner(), new_size));
        if !new.is_null() {
            return new;
        }
        if reentry::is_inside() {
            // SAFETY: as above. The block is still allocated, because `realloc` failed.
            let new = unsafe { self.copy_to_new_block(block, layout, new_size) };
            if !new.is_null() {
                // SAFETY: the block's content was copied to the new block.
                unsafe { self.inner.dealloc(block, layout) };
            }
            return new;
        }
        report_refusal(new_size);
        new
    }

    /// Reallocates a block while accounts are kept.
    ///
    /// # Safety
    /// The same as for `realloc`. In addition, the block must not be from the reserve.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_in_account(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let removed = accounts::reallocating(HOST, block as u64);
        // SAFETY: the caller upholds the same requirements.
        let new = unsafe { self.realloc_observed(block, layout, new_size) };
        accounts::reallocated(removed, new as u64, new_size as u64);
        new
    }

    /// Records and frees a block while memtrack's reserve is in use or accounts are kept.
    ///
    /// # Safety
    /// The same as for `inner.dealloc`.
    #[cold]
    #[inline(never)]
    unsafe fn free_slow_path(block: *mut u8, size: usize, align: usize, inner: &A) {
        if reserve::contains(block) {
            return;
        }
        if switch::is_on(switch::ACCOUNTS) {
            accounts::freeing(HOST, block as u64);
        }
        if switch::is_on(switch::HOST | switch::RESERVE) && !is_free_counted(block, size) {
            record_free(block as u64, size as u64);
        }
        // SAFETY: the caller upholds the requirements of `dealloc`.
        unsafe { inner.dealloc(block, Layout::from_size_align_unchecked(size, align)) };
    }

    /// Frees a block whose free may have to be recorded rather than only counted.
    ///
    /// # Safety
    /// The same as for `inner.dealloc`.
    #[inline(never)]
    unsafe fn record_and_free(block: *mut u8, size: usize, align: usize, inner: &A) {
        record_free(block as u64, size as u64);
        // SAFETY: the caller upholds the requirements of `dealloc`.
        unsafe { inner.dealloc(block, Layout::from_size_align_unchecked(size, align)) };
    }
}

// SAFETY: every call is passed to the inner allocator, and its blocks are returned unchanged. Blocks from the reserve
// are valid and are never passed to it. Recording neither unwinds nor allocates through `self` without the re-entry
// guard.
unsafe impl<A: GlobalAlloc> GlobalAlloc for TrackingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees what the inner allocator requires.
        let block = unsafe { self.inner.alloc(layout) };
        Self::observe_alloc(block, layout.size(), layout.align())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        Self::observe_alloc(block, layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (size, align, on) = (layout.size(), layout.align(), switch::all());
        if on & ANY_OBSERVER != 0 {
            if on & (switch::RESERVE | switch::ACCOUNTS) != 0 {
                // SAFETY: as in `alloc`.
                return unsafe { Self::free_slow_path(block, size, align, &self.inner) };
            }
            if !is_free_counted(block, size) {
                // SAFETY: as in `alloc`.
                return unsafe { Self::record_and_free(block, size, align, &self.inner) };
            }
        }
        // SAFETY: as in `alloc`.
        unsafe { self.inner.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !switch::is_on(ANY_OBSERVER) {
            // SAFETY: as in `alloc`.
            return unsafe { self.inner.realloc(block, layout, new_size) };
        }
        if reserve::contains(block) {
            // SAFETY: the caller guarantees that the new size is valid, and blocks from the reserve are never freed.
            return unsafe { self.copy_to_new_block(block, layout, new_size) };
        }
        if switch::is_on(switch::ACCOUNTS) {
            // SAFETY: the caller upholds the requirements of `realloc`, and the block is not from the reserve.
            return unsafe { self.realloc_in_account(block, layout, new_size) };
        }
        // SAFETY: as above.
        unsafe { self.realloc_observed(block, layout, new_size) }
    }
}

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

/// Returns the number of bytes that memtrack itself holds for its recording, on the heap and in its own mappings:
/// events, live blocks, stacks, scopes, per-thread state and unwind tables. They are the memory cost of recording and
/// appear in no report. The memory of snapshots and reports is not included.
///
/// Visits the shards of all tables, so it is cheap enough to call once a second, but not once per event.
pub fn own_bytes() -> i64 {
    crate::internal_bytes::total() + crate::events::table_bytes() as i64
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

/// Returns the number of bytes of the tracked heap that are in no statistics, because memtrack itself allocated them.
/// Tests use it to check that every byte of the heap is either in the statistics or counted here.
#[doc(hidden)]
pub fn internal_heap_bytes() -> i64 {
    INTERNAL_HEAP_BYTES.load(Ordering::Relaxed)
}

/// Observes an allocation while accounts are kept, and returns the block. It is tail-called so that the usual path
/// saves no registers for it.
#[cold]
#[inline(never)]
fn observe_alloc_in_account(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    if !WAS_CALLED.load(Ordering::Relaxed) {
        WAS_CALLED.store(true, Ordering::Relaxed);
    }
    if !block.is_null() {
        accounts::allocated(HOST, block as u64, size as u64);
    }
    if !switch::is_on(switch::HOST | switch::RESERVE) || !block.is_null() && is_counted(size) {
        return block;
    }
    record_or_refuse(block, size, align)
}

#[cold]
fn count_internal(bytes: i64) {
    WAS_CALLED.store(true, Ordering::Relaxed);
    INTERNAL_HEAP_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Observes an allocation, where `block` is null if the allocation failed.
#[inline(never)]
pub fn after_alloc(block: *mut u8, size: usize) {
    if block.is_null() || !is_counted(size) {
        record_or_sample(block, size as u64);
    }
}

/// Counts an allocated block if it is small and not sampled. Returns whether it was counted, in which case nothing more
/// is needed. Otherwise, [`after_alloc`] records it.
#[inline(always)]
pub fn is_counted(size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(thread) = thread_outside_hooks() else { return false };
    let is_counted = thread.state.countdown.is_skipped(size_bytes);
    if is_counted {
        thread.state.totals(HOST_SLOT).count_alloc(size_bytes);
    }
    is_counted
}

/// Does the same as [`record_or_sample`], for Rust's heap. If the allocation failed and memtrack itself requested it,
/// returns a block from the reserve.
#[inline(never)]
fn record_or_refuse(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    record_or_sample(block, size as u64);
    match Layout::from_size_align(size, align) {
        Ok(layout) if block.is_null() => {
            report_refusal(size);
            reserve::allocate(layout)
        }
        _ => block,
    }
}

/// Records a block that [`is_counted`] has not counted, or passes it to the sampler. Blocks of a thread that has not
/// read the session's settings yet also come here.
///
/// This is a separate function, like [`record_free`], so that blocks that are only counted, as nearly all blocks of a
/// sampled program are, pass through functions that save no registers.
#[inline(never)]
fn record_or_sample(block: *mut u8, size_bytes: u64) {
    if reentry::is_inside() {
        if !block.is_null() {
            count_internal(size_bytes as i64);
            transferred::allocated(block as u64, size_bytes);
        }
        return;
    }
    if is_copy() {
        return;
    }
    let mut flags = EventFlags::default();
    if size_bytes < sample_threshold_bytes() && !block.is_null() {
        let Some(thread) = thread_outside_hooks() else { return sample_first_small(block, size_bytes) };
        match thread.local().sampler.pick(&thread.state.countdown, size_bytes, session_number()) {
            Some(picked) => flags = picked,
            None => return count_unsampled(thread, size_bytes),
        }
    }
    if let Some(hook) = Hook::enter() {
        record_host_alloc(*hook, block, size_bytes, flags);
    }
}

/// Samples a small block on a thread that has no state, either because the block is the thread's first or because the
/// thread is ending.
#[cold]
fn sample_first_small(block: *mut u8, size_bytes: u64) {
    if let Some(hook) = Hook::enter() {
        sample_small(*hook, block, size_bytes);
    }
}

/// Samples a block below the threshold, so that it is either recorded or only counted.
#[inline(always)]
fn sample_small(hook: HookContext, block: *mut u8, size_bytes: u64) {
    let countdown = &hook.thread.state.countdown;
    if let Some(flags) = hook.thread.local().sampler.pick(countdown, size_bytes, session_number()) {
        record_host_alloc(hook, block, size_bytes, flags);
    } else {
        count_unsampled(hook.thread, size_bytes);
    }
}

/// Counts a small block that was not sampled, and updates the counted peak if an update is due.
#[inline(always)]
fn count_unsampled(thread: CurrentThread, size_bytes: u64) {
    thread.state.totals(HOST_SLOT).count_alloc(size_bytes);
    let local = thread.local();
    if local.sampler.take_piece_ended() {
        counted_peak::observe_after(local.newest_ticks.get());
    }
}

/// Observes that a block is about to be freed.
#[inline(never)]
pub fn before_free(block: *mut u8, size: usize) {
    if !is_free_counted(block, size) {
        record_free(block as u64, size as u64);
    }
}

/// Counts the free of a block if the block is small and was not recorded. Returns whether the free was counted, in
/// which case nothing more is needed.
#[inline(always)]
fn is_free_counted(block: *mut u8, size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(thread) = thread_outside_hooks() else { return false };
    let is_counted = thread.state.countdown.is_certainly_untracked(block as u64, size_bytes);
    if is_counted {
        thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
    is_counted
}

/// Counts the free of a block that [`is_counted`] has counted. Returns whether the free was counted, in which case nothing more is
/// needed. Otherwise, [`before_free`] records it.
#[inline(always)]
pub fn is_untracked_free_counted(size: usize) -> bool {
    let size_bytes = size as u64;
    let thread = thread_outside_hooks().filter(|thread| thread.state.countdown.is_small(size_bytes));
    let Some(thread) = thread else { return false };
    thread.state.totals(HOST_SLOT).count_free(size_bytes);
    true
}

/// Records the free of a block that may have been recorded, or any free by a thread that has not read the session's
/// settings yet.
#[inline(never)]
fn record_free(address: u64, size_bytes: u64) {
    if reentry::is_inside() {
        transferred::remove_if_known(address, size_bytes);
        return count_internal(-(size_bytes as i64));
    }
    if is_copy() {
        return;
    }
    if !may_be_tracked(address, size_bytes)
        && let Some(thread) = thread_outside_hooks()
    {
        thread.local().sampler.refresh(&thread.state.countdown, session_number());
        return thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
    let Some(hook) = Hook::enter() else { return };
    if may_be_tracked(address, size_bytes) {
        let begun = hook.thread.local().sampler.begin_free();
        let freed = hook.begin_free(HOST, address);
        record_host_free(*hook, freed, size_bytes);
        hook.thread.local().sampler.end_free(begun);
    } else {
        hook.thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
}

/// Records a call to `realloc`, which returns the new block and its size.
#[inline(always)]
pub fn record_realloc(old: *mut u8, old_size: usize, realloc: impl FnOnce() -> (*mut u8, usize)) -> *mut u8 {
    let counts = |thread: &CurrentThread| {
        switch::is_on(switch::HOST | switch::RESERVE)
            && thread.state.countdown.is_certainly_untracked(old as u64, old_size as u64)
    };
    let Some(thread) = thread_outside_hooks().filter(counts) else {
        return realloc_in_hook(old, old_size, realloc);
    };
    let (new, new_size) = {
        // An allocator may call its own `malloc` and `free` here; those blocks must not be recorded.
        let _inside = reentry::enter();
        realloc()
    };
    if !new.is_null() {
        thread.state.totals(HOST_SLOT).count_free(old_size as u64);
    }
    after_alloc(new, new_size);
    new
}

/// Records a `realloc` of a block that may have been recorded, or any `realloc` by a thread that has not read the
/// session's settings yet.
#[inline(never)]
fn realloc_in_hook(old: *mut u8, old_size: usize, realloc: impl FnOnce() -> (*mut u8, usize)) -> *mut u8 {
    let Some(hook) = Hook::enter() else {
        let is_internal = reentry::is_inside();
        // Remove the block before another thread can receive its address.
        let was_transferred = is_internal && transferred::remove_if_known(old as u64, old_size as u64);
        let (new, new_size) = realloc();
        if !new.is_null() && is_internal {
            count_internal(new_size as i64 - old_size as i64);
            match was_transferred {
                true => transferred::add(new as u64, new_size as u64),
                false => transferred::allocated(new as u64, new_size as u64),
            }
        }
        return new;
    };
    // Stamp the free before another thread can receive the address, and write it once the reallocation has succeeded.
    let freed = may_be_tracked(old as u64, old_size as u64).then(|| hook.begin_free(HOST, old as u64));
    let (new, new_size) = realloc();
    match freed {
        Some(freed) if new.is_null() => hook.restore_block(freed),
        Some(freed) => record_host_free(*hook, freed, old_size as u64),
        None if !new.is_null() => hook.thread.state.totals(HOST_SLOT).count_free(old_size as u64),
        None => {}
    }
    let size_bytes = new_size as u64;
    let exact = new.is_null() || size_bytes >= sample_threshold_bytes();
    if exact {
        record_host_alloc(*hook, new, size_bytes, EventFlags::default());
    } else {
        sample_small(*hook, new, size_bytes);
    }
    new
}

/// Returns whether a block may be in the live table, because it is large or may have been sampled.
#[inline(always)]
fn may_be_tracked(address: u64, size_bytes: u64) -> bool {
    size_bytes >= sample_threshold_bytes() || live_filter::may_contain(address)
}

#[inline(always)]
fn record_host_free(hook: HookContext, freed: crate::events::FreeInProgress, size_bytes: u64) {
    if freed.known_bytes().is_some_and(|known| known < sample_threshold_bytes()) {
        live_filter::remove(freed.address());
    }
    if !freed.is_known() && transferred::remove_if_known(freed.address(), size_bytes) {
        // The program's sums never included the block.
        count_internal(-(size_bytes as i64));
    } else if freed.is_known() || size_bytes >= sample_threshold_bytes() {
        hook.finish_free(freed, size_bytes, HEAP, false);
    } else {
        // The filter gave a false positive: the block was not sampled.
        hook.thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
}

#[inline(always)]
fn record_host_alloc(hook: HookContext, block: *mut u8, size_bytes: u64, flags: EventFlags) {
    if block.is_null() {
        return hook.record_without_block(Action::Oom, HOST, HEAP, 0, size_bytes);
    }
    let is_small = size_bytes < sample_threshold_bytes();
    if is_small {
        live_filter::add(block as u64);
    }
    if !hook.alloc(HOST, HEAP, block as u64, size_bytes, flags) && is_small {
        live_filter::remove(block as u64);
    }
    let local = hook.thread.local();
    let blocks = hook.thread.state.totals(HOST_SLOT).allocations();
    let countdown = &hook.thread.state.countdown;
    let stamp = local.newest_ticks.get();
    if counted_peak::is_on() {
        update_counted_peak(flags, is_small, stamp, blocks);
    }
    local.sampler.recorded(countdown, is_small, stamp, blocks);
}

/// Updates the counted peak after a block has been recorded with `stamp`. `blocks` is the number of blocks that the
/// thread has allocated so far.
#[inline(never)]
fn update_counted_peak(flags: EventFlags, is_small: bool, stamp: u64, blocks: u64) {
    /// The number of small blocks between two updates by a thread that records all blocks.
    const BLOCKS_PER_UPDATE: u64 = 8;
    if flags.contains(EventFlags::SAMPLED) {
        // The block was sampled, which triggered this update. Use the moment just before the block, because the memory
        // that was live then does not depend on the sampling.
        counted_peak::observe(stamp - 1);
    } else if !is_small || blocks.is_multiple_of(BLOCKS_PER_UPDATE) {
        counted_peak::observe(stamp);
    }
}
