//! The slow path of the host heap: blocks that the fast path ([`fast`]) has not counted. Large blocks are recorded, and
//! small ones are sampled.

use super::{HOST, fast};
use crate::events::{
    CurrentThread, FreeInProgress, Hook, HookContext, counted_peak, is_copy, thread_outside_hooks,
};
use crate::host::{HOST_SLOT, count_internal, live_filter, transferred};
use crate::settings::{sample_threshold_bytes, session};
use crate::{internal_blocks, probes, reentry, switch};
use memtrack_model::event::{Action, EventFlags, StreamId};

/// The stream of blocks that were not recorded when they were allocated, whose task is therefore unknown.
const NO_TASK: StreamId = StreamId(0);

/// Returns the stream of blocks of the heap, which is the task that the thread polls: `Event::recorded_task`.
#[inline(always)]
fn current_task() -> StreamId {
    StreamId(reentry::task())
}

/// Counts or records an allocation, where `block` is null if the allocation failed.
#[inline(never)]
pub fn after_alloc(block: *mut u8, size: usize) {
    if block.is_null() || !fast::count_alloc(size) {
        record_alloc(block, size as u64);
    }
}

/// Counts or records the free of a block that is about to be freed.
#[inline(never)]
pub fn before_free(block: *mut u8, size: usize) {
    if !fast::count_free(block, size) {
        record_free(block as u64, size as u64);
    }
}

/// Records a block that the fast path has not counted, unless it is small and not sampled. Blocks of a thread that has not
/// read the session's settings yet also come here. `block` is null if the allocation failed.
///
/// This is a separate function, like [`record_free`], so that blocks that are only counted pass through functions that save no
/// registers.
#[inline(never)]
pub(super) fn record_alloc(block: *mut u8, size_bytes: u64) {
    if reentry::is_inside() {
        if !block.is_null() {
            count_internal(size_bytes as i64);
            internal_blocks::add(block as u64, size_bytes);
            transferred::allocated(block as u64, size_bytes);
        }
        return;
    }
    if is_copy() {
        return;
    }
    let mut flags = EventFlags::default();
    if size_bytes < sample_threshold_bytes() && !block.is_null() {
        let Some(thread) = thread_outside_hooks() else { return record_first_alloc(block, size_bytes) };
        match sample(thread, size_bytes) {
            Some(sampled) => flags = sampled,
            None => return,
        }
    }
    if let Some(hook) = Hook::enter() {
        write_alloc(*hook, block, size_bytes, flags);
    }
}

/// Does the same as [`record_alloc`] for a small block on a thread that has no state, either because the block is the
/// thread's first or because the thread is ending.
#[cold]
fn record_first_alloc(block: *mut u8, size_bytes: u64) {
    if let Some(hook) = Hook::enter()
        && let Some(flags) = sample(hook.thread, size_bytes)
    {
        write_alloc(*hook, block, size_bytes, flags);
    }
}

/// Samples a block below the threshold. Returns the flags for its event; `None` if it was only counted, in which case the
/// counted peak is updated if an update is due.
#[inline(always)]
fn sample(thread: CurrentThread, size_bytes: u64) -> Option<EventFlags> {
    let local = thread.local();
    let sampled = local.sampler.pick(&thread.state.countdown, size_bytes, session());
    if sampled.is_none() {
        thread.state.totals(HOST_SLOT).count_alloc(size_bytes);
        if local.sampler.take_piece_ended() {
            counted_peak::observe_after(local.newest_ticks.get());
        }
    }
    sampled
}

/// Records the free of a block that may have been recorded, or any free by a thread that has not read the session's
/// settings yet.
#[inline(never)]
pub(super) fn record_free(address: u64, size_bytes: u64) {
    if reentry::is_inside() {
        transferred::remove_if_known(address, size_bytes);
        internal_blocks::remove(address, size_bytes);
        return count_internal(-(size_bytes as i64));
    }
    if is_copy() {
        return;
    }
    if !may_be_tracked(address, size_bytes)
        && let Some(thread) = thread_outside_hooks()
    {
        thread.local().sampler.refresh(&thread.state.countdown, session());
        return thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
    let Some(hook) = Hook::enter() else { return };
    if may_be_tracked(address, size_bytes) {
        let begun = hook.thread.local().sampler.begin_free();
        let freed = hook.begin_free(HOST, address);
        write_free(*hook, freed, size_bytes);
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
        return record_realloc_in_hook(old, old_size, realloc);
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
fn record_realloc_in_hook(
    old: *mut u8,
    old_size: usize,
    realloc: impl FnOnce() -> (*mut u8, usize),
) -> *mut u8 {
    let Some(hook) = Hook::enter() else {
        let is_internal = reentry::is_inside();
        // Remove the block before another thread can receive its address.
        let was_transferred = is_internal && transferred::remove_if_known(old as u64, old_size as u64);
        if is_internal {
            internal_blocks::remove(old as u64, old_size as u64);
        }
        let (new, new_size) = realloc();
        if !new.is_null() && is_internal {
            count_internal(new_size as i64 - old_size as i64);
            internal_blocks::add(new as u64, new_size as u64);
            match was_transferred {
                true => transferred::add(new as u64, new_size as u64),
                false => transferred::allocated(new as u64, new_size as u64),
            }
        }
        return new;
    };
    // Stamp the free before another thread can receive the address, and write it once the reallocation has succeeded.
    let freed = may_be_tracked(old as u64, old_size as u64).then(|| hook.begin_free(HOST, old as u64));
    if freed.as_ref().is_some_and(|freed| freed.is_known() || old_size as u64 >= sample_threshold_bytes()) {
        probes::reallocating(old as u64);
    }
    let (new, new_size) = realloc();
    match freed {
        Some(freed) if new.is_null() => hook.restore_block(freed),
        Some(freed) => write_free(*hook, freed, old_size as u64),
        None if !new.is_null() => hook.thread.state.totals(HOST_SLOT).count_free(old_size as u64),
        None => {}
    }
    probes::reallocated();
    let size_bytes = new_size as u64;
    let is_sampled = !new.is_null() && size_bytes < sample_threshold_bytes();
    let flags = if is_sampled { sample(hook.thread, size_bytes) } else { Some(EventFlags::default()) };
    if let Some(flags) = flags {
        write_alloc(*hook, new, size_bytes, flags);
    }
    new
}

/// Returns whether a block may be in the live table, because it is large or may have been sampled.
#[inline(always)]
fn may_be_tracked(address: u64, size_bytes: u64) -> bool {
    size_bytes >= sample_threshold_bytes() || live_filter::may_contain(address)
}

/// Writes the event of a free, or counts a free of a block that was not recorded.
#[inline(always)]
fn write_free(hook: HookContext, freed: FreeInProgress, size_bytes: u64) {
    if freed.known_bytes().is_some_and(|known| known < sample_threshold_bytes()) {
        live_filter::remove(freed.address());
    }
    if !freed.is_known() && transferred::remove_if_known(freed.address(), size_bytes) {
        // The program's sums never included the block.
        count_internal(-(size_bytes as i64));
        internal_blocks::remove(freed.address(), size_bytes);
    } else if freed.is_known() || size_bytes >= sample_threshold_bytes() {
        hook.finish_free(freed, size_bytes, NO_TASK, false);
    } else {
        // The filter gave a false positive: the block was not sampled.
        hook.thread.state.totals(HOST_SLOT).count_free(size_bytes);
    }
}

/// Writes the event of an allocation, where `block` is null if the allocation failed.
#[inline(always)]
fn write_alloc(hook: HookContext, block: *mut u8, size_bytes: u64, flags: EventFlags) {
    if block.is_null() {
        return hook.record_without_block(Action::Oom, HOST, current_task(), 0, size_bytes);
    }
    let is_small = size_bytes < sample_threshold_bytes();
    if is_small {
        live_filter::add(block as u64);
    }
    if !hook.alloc(HOST, current_task(), block as u64, size_bytes, flags) && is_small {
        live_filter::remove(block as u64);
    }
    let local = hook.thread.local();
    let blocks = hook.thread.state.totals(HOST_SLOT).allocations();
    let countdown = &hook.thread.state.countdown;
    let stamp = local.newest_ticks.get();
    if counted_peak::is_on() {
        observe_peak(flags, is_small, stamp, blocks);
    }
    local.sampler.recorded(countdown, is_small, stamp, blocks);
}

/// Updates the counted peak after a block has been recorded with `stamp`. `blocks` is the number of blocks that the
/// thread has allocated so far.
#[inline(never)]
fn observe_peak(flags: EventFlags, is_small: bool, stamp: u64, blocks: u64) {
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
