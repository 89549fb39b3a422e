//! The host heap as a source of events: [`TrackingAllocator`] wraps the program's global allocator. Blocks of at least
//! the threshold (64 KiB by default) are all recorded. So are smaller ones while a budget of processor time allows it;
//! otherwise they are sampled by bytes. The sums over all blocks are exact in every case.
//!
//! **What are "allocated" and "reserved" on a heap?** Allocated and active are the bytes that were allocated since
//! monitoring began minus those that were freed, so both fall below zero when older memory is freed; reserved is the
//! resident set.
#![allow(unsafe_code)]

mod budget;
mod counting;
mod cpu_time;
mod followed;
mod handed_out;
pub(crate) mod high;
pub mod reserve;
mod resident;
mod sampler;

/// What tells small blocks in the live table from others.
#[cfg(test)]
pub(crate) const FOLLOWED_BYTES: usize = followed::BYTES;

pub use budget::{sample_block_bytes, so_far as sampling_so_far};
pub use counting::Counting;
pub use handed_out::handing_out;
pub use resident::{resident_bytes, resident_bytes_lately};
pub(crate) use sampler::Sampler;
pub use sampler::{LoneSampler, Rules};

use crate::recorder::{Hook, Inside, Mine, sample_threshold_bytes, session_number, without_hook};
use crate::{accounts, reentry, switch};
use memtrack_model::event::{Action, DeviceId, EventFlags, StreamId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const HOST: DeviceId = DeviceId::HOST;
const HEAP: StreamId = StreamId(0);
/// The host's place among a thread's sums.
const HOST_SLOT: usize = 0;

/// What anybody has to be told of a block for.
const TOLD: u32 = switch::HOST | switch::RESERVE | switch::ACCOUNTS;

/// Bytes of the tracked heap that were taken inside memtrack, less those that were given back, while monitoring was on.
static OWN_HEAP_BYTES: AtomicI64 = AtomicI64::new(0);
static SEEN: AtomicBool = AtomicBool::new(false);

/// A global allocator that reports to the recorder and leaves the work to another.
///
/// ```
/// use memtrack_core::TrackingAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
/// # fn main() {}
/// ```
///
/// Around another allocator: `TrackingAllocator::new(MiMalloc)`.
///
/// # What it does per call
/// While nothing is monitored: one relaxed load and a branch. While something is: for a block below the threshold, two
/// sums of this thread and a countdown; for a recorded one, which is each while the budget allows it, a stack, the live
/// table and an event, 0.13 µs with a stack of 46 frames and 0.08 µs with frame pointers. It never blocks for long, never
/// panics and never records itself.
///
/// # What it does not see
/// Memory that does not come from Rust's global allocator: C libraries call `malloc` themselves. What was allocated
/// before monitoring began is known only by its free.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackingAllocator<A = System> {
    inner: A,
}

impl TrackingAllocator<System> {
    /// Around the system's allocator.
    pub const fn system() -> Self {
        Self { inner: System }
    }
}

impl<A> TrackingAllocator<A> {
    /// Around any allocator.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

impl<A: GlobalAlloc> TrackingAllocator<A> {
    /// A new block with the content of `block`, which stays; null when there is no memory.
    ///
    /// # Safety
    /// As for `realloc`.
    #[cold]
    unsafe fn moved(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: not empty, and not too large for the alignment. Both blocks have the bytes that are
        // copied, and they are two.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
            }
            new
        }
    }
}

// Counting is part of the allocator's own functions, which are compiled with the program: for it a thread-local is an offset, for
// a library a call. What is more than counting are functions of their own, called last and with the parts of a layout in the
// order that a program's allocator has them in, so that nothing is saved or moved for them before.
impl<A: GlobalAlloc> TrackingAllocator<A> {
    /// Tells of a block that was handed out, and returns it; where there is none, memtrack itself may still get one.
    #[inline(always)]
    fn told(block: *mut u8, size: usize, align: usize) -> *mut u8 {
        let on = switch::all();
        if on & TOLD == 0 {
            return block;
        }
        if on & switch::ACCOUNTS != 0 {
            return told_in_account(block, size, align);
        }
        if is_counted(block, size) { block } else { told_more(block, size, align) }
    }

    /// Has a block become another one, and tells the recorder.
    ///
    /// # Safety
    /// As for `realloc`; the block is not of the reserve.
    #[inline(always)]
    unsafe fn told_of_realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let inner = || unsafe { self.inner.realloc(block, layout, new_size) };
        let new = around_realloc(block, layout.size(), || (inner(), new_size));
        if !new.is_null() {
            return new;
        }
        if reentry::is_inside() {
            // SAFETY: as above; the block is still there, since `realloc` failed.
            let new = unsafe { self.moved(block, layout, new_size) };
            if !new.is_null() {
                // SAFETY: its content is elsewhere now.
                unsafe { self.inner.dealloc(block, layout) };
            }
            return new;
        }
        refused(new_size);
        new
    }

    /// The same, where accounts are kept.
    ///
    /// # Safety
    /// As for `realloc`; the block is not of the reserve.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_in_account(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let taken = accounts::reallocating(HOST, block as u64);
        // SAFETY: the caller's promise.
        let new = unsafe { self.told_of_realloc(block, layout, new_size) };
        accounts::reallocated(taken, new as u64, new_size as u64);
        new
    }

    /// Tells of a block, and gives it back, where memtrack's reserve is in use or accounts are kept.
    ///
    /// # Safety
    /// As for `dealloc` of `inner`.
    #[cold]
    #[inline(never)]
    unsafe fn told_and_freed_with_care(block: *mut u8, size: usize, align: usize, inner: &A) {
        if reserve::has(block) {
            return;
        }
        if switch::is_on(switch::ACCOUNTS) {
            accounts::freeing(HOST, block as u64);
        }
        if switch::is_on(switch::HOST | switch::RESERVE) && !is_free_counted(block, size) {
            record_free(block as u64, size as u64);
        }
        // SAFETY: the caller's promise.
        unsafe { inner.dealloc(block, Layout::from_size_align_unchecked(size, align)) };
    }

    /// Gives back a block whose free is more than counted.
    ///
    /// # Safety
    /// As for `dealloc` of `inner`.
    #[inline(never)]
    unsafe fn recorded_and_freed(block: *mut u8, size: usize, align: usize, inner: &A) {
        record_free(block as u64, size as u64);
        // SAFETY: the caller's promise.
        unsafe { inner.dealloc(block, Layout::from_size_align_unchecked(size, align)) };
    }
}

// SAFETY: every call goes to the inner allocator unchanged and its answer is returned unchanged; what is recorded around
// it neither allocates through `self` unguarded nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for TrackingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one the inner allocator asks for.
        let block = unsafe { self.inner.alloc(layout) };
        Self::told(block, layout.size(), layout.align())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        Self::told(block, layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (size, align, on) = (layout.size(), layout.align(), switch::all());
        if on & TOLD != 0 {
            if on & (switch::RESERVE | switch::ACCOUNTS) != 0 {
                // SAFETY: as in `alloc`.
                return unsafe { Self::told_and_freed_with_care(block, size, align, &self.inner) };
            }
            if !is_free_counted(block, size) {
                // SAFETY: as in `alloc`.
                return unsafe { Self::recorded_and_freed(block, size, align, &self.inner) };
            }
        }
        // SAFETY: as in `alloc`.
        unsafe { self.inner.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !switch::is_on(TOLD) {
            // SAFETY: as in `alloc`.
            return unsafe { self.inner.realloc(block, layout, new_size) };
        }
        if reserve::has(block) {
            // SAFETY: the caller's promise for the new size; the reserve takes nothing back.
            return unsafe { self.moved(block, layout, new_size) };
        }
        if switch::is_on(switch::ACCOUNTS) {
            // SAFETY: the caller's promise, and the block is not of the reserve.
            return unsafe { self.realloc_in_account(block, layout, new_size) };
        }
        // SAFETY: as above.
        unsafe { self.told_of_realloc(block, layout, new_size) }
    }
}

/// The heap refused a request: says who holds it, if the session's options say so. Called under no lock of memtrack's, after
/// the hook.
#[cold]
pub fn refused(size_bytes: usize) {
    crate::recorder::refused_by_heap(size_bytes as u64);
}

/// Whether the program's global allocator is a [`TrackingAllocator`]. Asks by allocating; recording must be on.
pub fn is_installed() -> bool {
    let _inside = reentry::enter();
    drop(std::hint::black_box(Box::new(0_u8)));
    SEEN.load(Ordering::Relaxed)
}

/// Bytes that memtrack itself holds for what it records, of the heap and in mappings of its own: events, live blocks,
/// stacks, scopes, what it keeps of threads, unwind tables. They are in no report: this is what memtrack costs. Does not
/// include memory used by snapshots and reports.
///
/// Asks tables for their size, each shard by itself: for once a second, not for once an event.
pub fn own_bytes() -> i64 {
    crate::own::held() + crate::recorder::table_bytes() as i64
}

/// A new session: no block is followed any more, and nothing is spent.
pub(crate) fn forget_samples() {
    handed_out::clear();
    followed::clear();
    budget::begin();
    high::clear();
}

/// In the child of a fork: files are the parent's, and so are the sums so far.
pub(crate) fn reset_after_fork() {
    followed::leave_behind();
    handed_out::leave_behind();
    high::clear();
}

/// What of the tracked heap's bytes is in no book because memtrack took it itself. For tests, which find each byte of
/// the heap in one of the two.
#[doc(hidden)]
pub fn own_heap_bytes() -> i64 {
    OWN_HEAP_BYTES.load(Ordering::Relaxed)
}

/// Tells of a block that was handed out, and returns it, where accounts are kept. A function that is called last, so that
/// the usual path saves no registers for it.
#[cold]
#[inline(never)]
fn told_in_account(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    if !SEEN.load(Ordering::Relaxed) {
        SEEN.store(true, Ordering::Relaxed);
    }
    if !block.is_null() {
        accounts::allocated(HOST, block as u64, size as u64);
    }
    if !switch::is_on(switch::HOST | switch::RESERVE) || is_counted(block, size) {
        return block;
    }
    told_more(block, size, align)
}

#[cold]
fn count_own(bytes: i64) {
    SEEN.store(true, Ordering::Relaxed);
    OWN_HEAP_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// A block was handed out; null: it could not be.
#[inline(never)]
pub fn after_alloc(block: *mut u8, size: usize) {
    if !is_counted(block, size) {
        not_only_counted(block, size as u64);
    }
}

/// Whether a block that was handed out is small and not picked. Then it was counted, and that is all.
#[inline(always)]
fn is_counted(block: *mut u8, size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(mine) = without_hook() else { return false };
    let is_counted = !block.is_null() && mine.state.counting.passes(size_bytes);
    if is_counted {
        mine.state.slots[HOST_SLOT].totals.count_alloc(size_bytes);
    }
    is_counted
}

/// As [`not_only_counted`], for Rust's heap: where there is no block, memtrack itself may still get one.
#[inline(never)]
fn told_more(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    not_only_counted(block, size as u64);
    match Layout::from_size_align(size, align) {
        Ok(layout) if block.is_null() => {
            refused(size);
            reserve::instead(layout)
        }
        _ => block,
    }
}

/// A block was handed out that is more than counted, or of a thread that has yet to look up what is.
///
/// By itself, as [`record_free`] is: so that the blocks that are only counted, nearly all of a program that is sampled, pass
/// through functions that save no registers.
#[inline(never)]
fn not_only_counted(block: *mut u8, size_bytes: u64) {
    if reentry::is_inside() {
        if !block.is_null() {
            count_own(size_bytes as i64);
            handed_out::allocated(block as u64, size_bytes);
        }
        return;
    }
    let mut flags = EventFlags::default();
    if size_bytes < sample_threshold_bytes() && !block.is_null() {
        let Some(mine) = without_hook() else { return first_small(block, size_bytes) };
        match mine.own().sampler.picks(&mine.state.counting, size_bytes, session_number()) {
            Some(picked) => flags = picked,
            None => return only_counted(mine, size_bytes),
        }
    }
    if let Some(hook) = Hook::enter() {
        allocated(*hook, block, size_bytes, flags);
    }
}

/// A small block of a thread without a state of its own: its first, or one of a thread that is ending.
#[cold]
fn first_small(block: *mut u8, size_bytes: u64) {
    if let Some(hook) = Hook::enter() {
        small(*hook, block, size_bytes);
    }
}

/// A block below the threshold: picked, or only counted.
#[inline(always)]
fn small(hook: Inside, block: *mut u8, size_bytes: u64) {
    let counting = &hook.thread.state.counting;
    if let Some(flags) = hook.thread.own().sampler.picks(counting, size_bytes, session_number()) {
        allocated(hook, block, size_bytes, flags);
    } else {
        only_counted(hook.thread, size_bytes);
    }
}

/// A small block that was not picked; at times it is looked then how much is live.
#[inline(always)]
fn only_counted(mine: Mine, size_bytes: u64) {
    mine.state.slots[HOST_SLOT].totals.count_alloc(size_bytes);
    let own = mine.own();
    if own.sampler.takes_look() {
        high::look_after(own.newest_ticks.get());
    }
}

/// A block is about to be given back.
#[inline(never)]
pub fn before_free(block: *mut u8, size: usize) {
    if !is_free_counted(block, size) {
        record_free(block as u64, size as u64);
    }
}

/// Whether a block that is given back is small and was not recorded. Then its free was counted, and that is all.
#[inline(always)]
fn is_free_counted(block: *mut u8, size: usize) -> bool {
    let size_bytes = size as u64;
    let Some(mine) = without_hook() else { return false };
    let is_counted = mine.state.counting.is_not_followed(block as u64, size_bytes);
    if is_counted {
        mine.state.slots[HOST_SLOT].totals.count_free(size_bytes);
    }
    is_counted
}

/// The free of a block that may have been recorded, or of a thread that has yet to look up which are.
#[inline(never)]
fn record_free(address: u64, size_bytes: u64) {
    if reentry::is_inside() {
        handed_out::takes(address, size_bytes);
        return count_own(-(size_bytes as i64));
    }
    if !is_tracked(address, size_bytes)
        && let Some(mine) = without_hook()
    {
        mine.own().sampler.keep_up(&mine.state.counting, session_number());
        return mine.state.slots[HOST_SLOT].totals.count_free(size_bytes);
    }
    let Some(hook) = Hook::enter() else { return };
    if is_tracked(address, size_bytes) {
        let begun = hook.thread.own().sampler.free_begins();
        let freed = hook.free(HOST, address);
        freed_host(*hook, freed, size_bytes);
        hook.thread.own().sampler.free_ends(begun);
    } else {
        hook.thread.state.slots[HOST_SLOT].totals.count_free(size_bytes);
    }
}

/// A block becomes another one by `realloc`, which returns it and its size.
#[inline(always)]
pub fn around_realloc(old: *mut u8, old_size: usize, realloc: impl FnOnce() -> (*mut u8, usize)) -> *mut u8 {
    let counts = |mine: &Mine| {
        switch::is_on(switch::HOST | switch::RESERVE)
            && mine.state.counting.is_not_followed(old as u64, old_size as u64)
    };
    let Some(mine) = without_hook().filter(counts) else { return realloc_in_hook(old, old_size, realloc) };
    let (new, new_size) = {
        // An allocator may do it with its own `malloc` and `free`, which are no blocks of the program's.
        let _inside = reentry::enter();
        realloc()
    };
    if !new.is_null() {
        mine.state.slots[HOST_SLOT].totals.count_free(old_size as u64);
    }
    after_alloc(new, new_size);
    new
}

/// The same for a block that may have been recorded, or of a thread that has yet to look up which are.
#[inline(never)]
fn realloc_in_hook(old: *mut u8, old_size: usize, realloc: impl FnOnce() -> (*mut u8, usize)) -> *mut u8 {
    let Some(hook) = Hook::enter() else {
        let is_ours = reentry::is_inside();
        // Before its address can be somebody else's.
        let was_handed_out = is_ours && handed_out::takes(old as u64, old_size as u64);
        let (new, new_size) = realloc();
        if !new.is_null() && is_ours {
            count_own(new_size as i64 - old_size as i64);
            match was_handed_out {
                true => handed_out::add(new as u64, new_size as u64),
                false => handed_out::allocated(new as u64, new_size as u64),
            }
        }
        return new;
    };
    // The free is stamped before the block can be handed to anybody else, and written once it is certain.
    let freed = is_tracked(old as u64, old_size as u64).then(|| hook.free(HOST, old as u64));
    let (new, new_size) = realloc();
    match freed {
        Some(freed) if new.is_null() => hook.not_freed(freed),
        Some(freed) => freed_host(*hook, freed, old_size as u64),
        None if !new.is_null() => hook.thread.state.slots[HOST_SLOT].totals.count_free(old_size as u64),
        None => {}
    }
    let size_bytes = new_size as u64;
    let exact = new.is_null() || size_bytes >= sample_threshold_bytes();
    if exact {
        allocated(*hook, new, size_bytes, EventFlags::default());
    } else {
        small(*hook, new, size_bytes);
    }
    new
}

/// Whether a block may be in the live table: large, or perhaps picked.
#[inline(always)]
fn is_tracked(address: u64, size_bytes: u64) -> bool {
    size_bytes >= sample_threshold_bytes() || followed::may_contain(address)
}

#[inline(always)]
fn freed_host(hook: Inside, freed: crate::recorder::Freed, size_bytes: u64) {
    if freed.known_bytes().is_some_and(|known| known < sample_threshold_bytes()) {
        followed::remove(freed.address());
    }
    if !freed.is_known() && handed_out::takes(freed.address(), size_bytes) {
        // It never was in a book.
        count_own(-(size_bytes as i64));
    } else if freed.is_known() || size_bytes >= sample_threshold_bytes() {
        hook.freed(freed, size_bytes, HEAP, false);
    } else {
        // It only looked as if it had been picked.
        hook.thread.state.slots[HOST_SLOT].totals.count_free(size_bytes);
    }
}

#[inline(always)]
fn allocated(hook: Inside, block: *mut u8, size_bytes: u64, flags: EventFlags) {
    if block.is_null() {
        return hook.other(Action::Oom, HOST, HEAP, 0, size_bytes);
    }
    let is_small = size_bytes < sample_threshold_bytes();
    if is_small {
        followed::add(block as u64);
    }
    if !hook.alloc(HOST, HEAP, block as u64, size_bytes, flags) && is_small {
        followed::remove(block as u64);
    }
    let own = hook.thread.own();
    let blocks = hook.thread.state.slots[HOST_SLOT].totals.allocations();
    let counting = &hook.thread.state.counting;
    let stamp = own.newest_ticks.get();
    if high::is_on() {
        look(flags, is_small, stamp, blocks);
    }
    own.sampler.recorded(counting, is_small, stamp, blocks);
}

/// Looks how much is live, after a block was recorded with that stamp as the thread's last of `blocks`.
#[inline(never)]
fn look(flags: EventFlags, is_small: bool, stamp: u64, blocks: u64) {
    /// Of the small blocks of a thread that records all of its own, every so many are enough.
    const ONE_IN: u64 = 8;
    if flags.contains(EventFlags::SAMPLED) {
        // That it is looked now follows from the block's being picked: what was live before it does not.
        high::look(stamp - 1);
    } else if !is_small || blocks.is_multiple_of(ONE_IN) {
        high::look(stamp);
    }
}
