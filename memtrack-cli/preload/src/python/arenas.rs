//! The arena allocator that memtrack sets for CPython: it calls the original, and notes where arenas are. The arena itself is
//! not recorded, because the blocks in it are.
//!
//! From 3.11 on, CPython calls the arena allocator also for the stacks of its frames, in chunks of 16 KiB. They are not arenas, so
//! they are passed through, and recorded as other mapped memory.

use super::domains::Allocator;
use super::interpreter::Interpreter;
use super::sizes;
use memtrack_recorder::{errno, internal_bytes};
use memtrack_run::heap;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// CPython's `PyObjectArenaAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ArenaAllocator {
    pub(super) context: *mut c_void,
    pub(super) alloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(super) free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

impl ArenaAllocator {
    /// Returns an allocator that calls the interpreter's original.
    pub(super) fn watching(interpreter: &'static Interpreter) -> Self {
        Self { context: std::ptr::from_ref(interpreter).cast_mut().cast(), alloc, free }
    }
}

/// The size of arenas before 3.10; later ones are larger.
const MIN_ARENA_BYTES: usize = 256 << 10;

unsafe extern "C" fn alloc(context: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(interpreter) = Interpreter::of_context(context) else { return null_mut() };
    let original = &interpreter.arenas;
    // SAFETY: called as CPython would call it.
    let allocate = || unsafe { (original.alloc)(original.context, bytes) };
    if bytes < MIN_ARENA_BYTES {
        return allocate();
    }
    heap::unrecorded(|| {
        let arena = allocate();
        if !arena.is_null() {
            errno::preserving(|| {
                internal_bytes::add_inherited(sizes::add_arena(arena.addr(), bytes));
                replace_allocators(interpreter);
            });
        }
        arena
    })
}

unsafe extern "C" fn free(context: *mut c_void, arena: *mut c_void, bytes: usize) {
    let Some(interpreter) = Interpreter::of_context(context) else { return };
    let original = &interpreter.arenas;
    // SAFETY: called as CPython would call it.
    let release = || unsafe { (original.free)(original.context, arena, bytes) };
    if bytes < MIN_ARENA_BYTES {
        return release();
    }
    errno::preserving(|| {
        let freed = |address, size| {
            if heap::is_on() {
                heap::record_object_free(std::ptr::without_provenance_mut(address), size);
            }
        };
        let removed = sizes::remove_arena(arena.addr(), bytes, freed);
        internal_bytes::subtract_inherited(removed);
    });
    heap::unrecorded(release);
}

/// A domain of CPython's allocators.
pub(super) struct Domain {
    /// The domain's number in CPython's `PyMemAllocatorDomain`.
    number: c_int,
    /// The allocator that memtrack replaced; null before that.
    original: AtomicPtr<Allocator>,
}

impl Domain {
    pub(super) const fn new(number: c_int) -> Self {
        Self { number, original: AtomicPtr::new(null_mut()) }
    }
}

/// Replaces the allocators of both domains if this has not been done, or if the original was set again: CPython does this if
/// it is initialised once more. Otherwise, another hook may have been set that calls memtrack's. A second one on top of it would
/// record each block twice.
fn replace_allocators(interpreter: &'static Interpreter) {
    for domain in &interpreter.domains {
        let mut current = MaybeUninit::<[*mut c_void; 5]>::zeroed();
        // SAFETY: CPython writes a `PyMemAllocatorEx`, which is five pointers.
        let current = unsafe {
            (interpreter.functions.get_allocator)(domain.number, current.as_mut_ptr().cast());
            current.assume_init()
        };
        if current[1..].iter().any(|function| function.is_null()) {
            continue;
        }
        // SAFETY: the four functions of an allocator, which are not null.
        let current = unsafe { transmute::<[*mut c_void; 5], Allocator>(current) };
        // SAFETY: the pointer is null, or from the leaked box below.
        let original = match unsafe { domain.original.load(Ordering::Acquire).as_ref() } {
            None => {
                let original: &'static Allocator = Box::leak(Box::new(current));
                domain.original.store(std::ptr::from_ref(original).cast_mut(), Ordering::Release);
                original
            }
            Some(original) if is_same(original, &current) => original,
            Some(_) => continue,
        };
        let recording = Allocator::recording(original);
        // SAFETY: CPython copies the allocator, whose functions and context stay valid.
        unsafe { (interpreter.functions.set_allocator)(domain.number, &recording) };
    }
}

fn is_same(one: &Allocator, other: &Allocator) -> bool {
    one.context == other.context && std::ptr::fn_addr_eq(one.malloc, other.malloc)
}
