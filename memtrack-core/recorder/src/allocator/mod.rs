//! The host heap as a source of events. [`TrackingAllocator`] is the program's global allocator: it calls the inner allocator
//! and then, if the heap is observed, the fast path (`fast`), which counts blocks that are not sampled, or the slow path
//! (`record`), which samples or records the others. The preload library reports the blocks of C's heap with the same
//! functions. [`host`](crate::host) decides which small blocks are recorded.
//!
//! Without the feature `record`, the allocator only calls the inner one.
#![allow(unsafe_code)]

#[cfg(feature = "record")]
mod fast;
#[cfg(feature = "record")]
mod record;

use std::alloc::{GlobalAlloc, Layout, System};
#[cfg(feature = "record")]
use {
    crate::host::{note_call, reserve},
    crate::{accounts, reentry, switch},
    fast::count_free,
    memtrack_model::event::DeviceId,
    record::{record_alloc, record_free},
};

#[cfg(feature = "record")]
pub use {
    fast::{count_alloc, count_untracked_free},
    record::{after_alloc, before_free, record_realloc},
};

#[cfg(feature = "record")]
const HOST: DeviceId = DeviceId::HOST;

/// The switches that require blocks to be observed. If none of them is on, calls only reach the inner allocator.
#[cfg(feature = "record")]
const ANY_OBSERVER: u32 = switch::HOST | switch::RESERVE | switch::ACCOUNTS;

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

// Counting is part of the allocator's own functions, which are compiled with the program. There, accessing a
// thread-local is an offset, whereas in a shared library it is a call. All work beyond counting is in separate
// functions. These are tail-called, with the size and alignment in the order in which an allocator receives them, so
// that the counting path need not save or move registers.
#[cfg(feature = "record")]
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
        if !block.is_null() && count_alloc(size) { block } else { record_or_refuse(block, size, align) }
    }

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

    /// Reallocates a block that may be from the reserve, while blocks are observed.
    ///
    /// # Safety
    /// The same as for `realloc`.
    #[inline(always)]
    unsafe fn observe_realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if reserve::contains(block) {
            // SAFETY: the caller guarantees that the new size is valid, and blocks from the reserve are never freed.
            return unsafe { self.copy_to_new_block(block, layout, new_size) };
        }
        if switch::is_on(switch::ACCOUNTS) {
            // SAFETY: the caller upholds the requirements of `realloc`, and the block is not from the reserve.
            return unsafe { self.realloc_in_account(block, layout, new_size) };
        }
        // SAFETY: as above.
        unsafe { self.realloc_recorded(block, layout, new_size) }
    }

    /// Reallocates a block and records the free and the allocation.
    ///
    /// # Safety
    /// The same as for `realloc`. In addition, the block must not be from the reserve.
    #[inline(always)]
    unsafe fn realloc_recorded(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
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
        let new = unsafe { self.realloc_recorded(block, layout, new_size) };
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
        if switch::is_on(switch::HOST | switch::RESERVE) && !count_free(block, size) {
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
        #[cfg(feature = "record")]
        let block = Self::observe_alloc(block, layout.size(), layout.align());
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        #[cfg(feature = "record")]
        let block = Self::observe_alloc(block, layout.size(), layout.align());
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        #[cfg(feature = "record")]
        {
            let (size, align, on) = (layout.size(), layout.align(), switch::all());
            if on & ANY_OBSERVER != 0 {
                if on & (switch::RESERVE | switch::ACCOUNTS) != 0 {
                    // SAFETY: as in `alloc`.
                    return unsafe { Self::free_slow_path(block, size, align, &self.inner) };
                }
                if !count_free(block, size) {
                    // SAFETY: as in `alloc`.
                    return unsafe { Self::record_and_free(block, size, align, &self.inner) };
                }
            }
        }
        // SAFETY: as in `alloc`.
        unsafe { self.inner.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        #[cfg(feature = "record")]
        if switch::is_on(ANY_OBSERVER) {
            // SAFETY: the caller upholds the requirements of `realloc`.
            return unsafe { self.observe_realloc(block, layout, new_size) };
        }
        // SAFETY: as in `alloc`.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}

/// Observes an allocation while accounts are kept, and returns the block. It is tail-called so that the usual path
/// saves no registers for it.
#[cfg(feature = "record")]
#[cold]
#[inline(never)]
fn observe_alloc_in_account(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    note_call();
    if !block.is_null() {
        accounts::allocated(HOST, block as u64, size as u64);
    }
    if !switch::is_on(switch::HOST | switch::RESERVE) || !block.is_null() && count_alloc(size) {
        return block;
    }
    record_or_refuse(block, size, align)
}

/// Records an allocation that the fast path has not counted. If the allocation failed and memtrack itself requested it,
/// returns a block from the reserve.
#[cfg(feature = "record")]
#[inline(never)]
fn record_or_refuse(block: *mut u8, size: usize, align: usize) -> *mut u8 {
    record_alloc(block, size as u64);
    match Layout::from_size_align(size, align) {
        Ok(layout) if block.is_null() => {
            report_refusal(size);
            reserve::allocate(layout)
        }
        _ => block,
    }
}

/// Returns the number of bytes that memtrack itself holds for its recording, on the heap and in its own mappings:
/// events, live blocks, stacks, scopes, per-thread state and unwind tables. They are the memory cost of recording and
/// appear in no report. The memory of snapshots and reports is not included.
///
/// Visits the shards of all tables, so it is cheap enough to call once a second, but not once per event.
pub fn own_bytes() -> i64 {
    #[cfg(feature = "record")]
    return crate::events::own_bytes();
    #[cfg(not(feature = "record"))]
    0
}

/// Returns the number of bytes of the tracked heap that are in no statistics, because memtrack itself allocated them.
/// Tests use it to check that every byte of the heap is either in the statistics or counted here.
#[doc(hidden)]
pub fn internal_heap_bytes() -> i64 {
    #[cfg(feature = "record")]
    return crate::host::INTERNAL_HEAP_BYTES.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "record"))]
    0
}

/// Reports that the heap refused a request by printing what holds the memory, if the session's options request it. Must
/// be called outside hooks, while none of memtrack's locks is held.
#[cfg(feature = "record")]
#[cold]
pub fn report_refusal(size_bytes: usize) {
    crate::events::report_heap_refusal(size_bytes as u64);
}
