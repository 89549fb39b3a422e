//! The functions that memtrack sets for CPython's domains `mem` and `obj`. Each calls the original function and records the
//! block if it lies in an arena. Larger blocks are from `malloc`, which the original calls and which records them.
//!
//! **What does this cost?** A block that is only counted takes some 4 ns when it is allocated, and as much when it is freed: half
//! of it for its size (`sizes`), half for the sums. In a loop of integer additions, in which CPython allocates and frees a block in
//! 18 ns, this is half as much again.

use super::calls;
use super::sizes::{self, Inserted, Removed};
use memtrack_recorder::allocator;
use memtrack_run::heap;
use std::ffi::c_void;

type Block = *mut c_void;
type Context = *mut c_void;

/// CPython's `PyMemAllocatorEx`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Allocator {
    pub(super) context: Context,
    pub(super) malloc: unsafe extern "C" fn(Context, usize) -> Block,
    pub(super) calloc: unsafe extern "C" fn(Context, usize, usize) -> Block,
    pub(super) realloc: unsafe extern "C" fn(Context, Block, usize) -> Block,
    pub(super) free: unsafe extern "C" fn(Context, Block),
}

impl Allocator {
    /// Returns an allocator that calls `original` and records the blocks.
    pub(super) fn recording(original: &'static Self) -> Self {
        let context = std::ptr::from_ref(original).cast_mut().cast();
        Self { context, malloc, calloc, realloc, free }
    }

    /// Returns the original allocator of a function's context.
    ///
    /// # Safety
    /// The context must be from [`Self::recording`].
    #[inline(always)]
    unsafe fn original(context: Context) -> &'static Self {
        // SAFETY: the caller guarantees that this is the reference in `recording`.
        unsafe { &*context.cast::<Self>() }
    }
}

/// Records a new block, if it is in an arena.
#[inline(always)]
fn record(block: Block, size: usize) -> Block {
    // Null is in no arena. The inner `malloc` has recorded that it failed.
    if !heap::is_on() {
        return block;
    }
    match sizes::insert(block.addr(), size) {
        Inserted::Elsewhere => block,
        Inserted::New if allocator::count_alloc(size) => block,
        Inserted::New => record_uncounted(block, size),
        Inserted::Replaced(older) => {
            heap::record_object_free(block, older);
            record_uncounted(block, size)
        }
    }
}

/// Records a block that was not only counted. It is tail-called so that the usual path saves few registers.
#[cold]
#[inline(never)]
fn record_uncounted(block: Block, size: usize) -> Block {
    sizes::mark_tracked(block.addr());
    heap::record_object(block, size);
    calls::set_if_due();
    block
}

/// Records that a block is about to be freed, if it is in an arena. Returns its size if it was recorded.
#[inline(always)]
fn record_free(block: Block) -> Option<usize> {
    let Removed { size, is_tracked } = sizes::remove(block.addr())?;
    if heap::is_on() && (is_tracked || !allocator::count_untracked_free(size)) {
        heap::record_object_free(block, size);
    }
    Some(size)
}

unsafe extern "C" fn malloc(context: Context, size: usize) -> Block {
    // SAFETY: CPython passes the context that was set with this function. The original is called as CPython would call it.
    let block = unsafe {
        let original = Allocator::original(context);
        (original.malloc)(original.context, size)
    };
    record(block, size)
}

unsafe extern "C" fn calloc(context: Context, count: usize, size: usize) -> Block {
    // SAFETY: as in `malloc`.
    let block = unsafe {
        let original = Allocator::original(context);
        (original.calloc)(original.context, count, size)
    };
    record(block, count.saturating_mul(size))
}

unsafe extern "C" fn free(context: Context, block: Block) {
    record_free(block);
    // SAFETY: as in `malloc`.
    unsafe {
        let original = Allocator::original(context);
        (original.free)(original.context, block);
    }
}

/// Reallocates a block. It may stay, move in the arenas, or move from an arena to `malloc`, which then records the new block.
unsafe extern "C" fn realloc(context: Context, old: Block, size: usize) -> Block {
    // The free is recorded first, because the original may free the block.
    let old_size = record_free(old);
    // SAFETY: as in `malloc`.
    let new = unsafe {
        let original = Allocator::original(context);
        (original.realloc)(original.context, old, size)
    };
    if new.is_null() {
        // The old block stays allocated. Its stack is from now on that of this call, because the free was recorded.
        if let Some(old_size) = old_size {
            record(old, old_size);
        }
        return new;
    }
    record(new, size)
}
