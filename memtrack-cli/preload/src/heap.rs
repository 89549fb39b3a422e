//! C's heap, for `memtrack run --host`: the functions that `malloc` and its siblings in memtrack-preload-heap jump to.
//! Each calls the allocator that the program would have called, and notifies the recorder. Without `--host` these
//! functions are not called.

use crate::next_function::{NextFunction, next_functions};
use memtrack_cuda::run::binary_of;
use memtrack_recorder::errno;
use memtrack_recorder::mapped::set_allocator_code;
use memtrack_recorder::stack::modules::binary_at;
use memtrack_run::heap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

type Block = *mut c_void;

next_functions! {
    MALLOC = c"malloc"(usize) -> Block;
    CALLOC = c"calloc"(usize, usize) -> Block;
    REALLOC = c"realloc"(Block, usize) -> Block;
    FREE = c"free"(Block);
    POSIX_MEMALIGN = c"posix_memalign"(*mut Block, usize, usize) -> c_int;
    ALIGNED_ALLOC = c"aligned_alloc"(usize, usize) -> Block;
    MEMALIGN = c"memalign"(usize, usize) -> Block;
    VALLOC = c"valloc"(usize) -> Block;
    PVALLOC = c"pvalloc"(usize) -> Block;
    FREE_SIZED = c"free_sized"(Block, usize);
    FREE_ALIGNED_SIZED = c"free_aligned_sized"(Block, usize, usize);
    LIBC_MALLOC = c"__libc_malloc"(usize) -> Block;
    LIBC_CALLOC = c"__libc_calloc"(usize, usize) -> Block;
    LIBC_REALLOC = c"__libc_realloc"(Block, usize) -> Block;
    LIBC_FREE = c"__libc_free"(Block);
    LIBC_MEMALIGN = c"__libc_memalign"(usize, usize) -> Block;
    LIBC_VALLOC = c"__libc_valloc"(usize) -> Block;
    LIBC_PVALLOC = c"__libc_pvalloc"(usize) -> Block;
    GETATTR = c"pthread_getattr_np"(libc::pthread_t, *mut c_void) -> c_int;
    USABLE_SIZE = c"malloc_usable_size"(Block) -> usize;
}

/// Looks up all functions, while the process has one thread, and finds out which allocator they belong to.
pub(super) fn prepare() {
    look_up_all();
    // A small allocator may lack such a function, and the next function in the loader's order would belong to another
    // allocator.
    let in_one_binary = |a: Option<*mut c_void>, b: Option<*mut c_void>| match (a, b) {
        (Some(a), Some(b)) => binary_of(a) == binary_of(b),
        _ => false,
    };
    let malloc = MALLOC.address();
    let is_one_allocator =
        in_one_binary(malloc, LIBC_MALLOC.address()) && in_one_binary(FREE.address(), LIBC_FREE.address());
    LIBC_NAMES_ARE_RECORDED.store(is_one_allocator, Ordering::Relaxed);
    // Then the program's heap is the allocator that contains this `malloc`, rather than the C library.
    if !is_one_allocator
        && let Some(malloc) = malloc
        && let Some(code) = binary_at(malloc.addr() as u64)
    {
        set_allocator_code(code);
    }
    if !in_one_binary(malloc, USABLE_SIZE.address()) {
        HAS_SIZES.store(false, Ordering::Relaxed);
        heap::set_without_sizes();
    }
}

/// Whether the allocator reports the sizes of its blocks. If it does not, blocks have the sizes that were requested, and every
/// block is recorded, so that the recorder knows its size when it is freed.
static HAS_SIZES: AtomicBool = AtomicBool::new(true);

/// Whether calls through the C library's own names (`__libc_malloc`) are recorded. They are recorded if these are other names
/// for the functions that `malloc` and its siblings jump to. Otherwise, the program has another allocator, which may be a
/// wrapper that calls the C library's functions. The blocks of that allocator were recorded when it was called. The C
/// library's blocks are different ones, and would be counted in addition.
static LIBC_NAMES_ARE_RECORDED: AtomicBool = AtomicBool::new(false);

/// Returns whether this call is to be recorded.
#[inline(always)]
pub(super) fn is_on() -> bool {
    heap::is_on() && crate::tls::is_set_up()
}

/// Calls `real`, a function of the allocator. It may itself call the program's `malloc` or `free` for the same block, and
/// these inner calls are not recorded.
fn call_once_recorded<R>(real: impl FnOnce() -> R) -> R {
    if is_on() { heap::unrecorded(real) } else { real() }
}

/// Memory for allocations while the allocator is being looked up: zeroed, and never reused.
#[repr(align(16))]
struct EarlyMemory {
    _bytes: [u8; EARLY_BYTES],
}
const EARLY_BYTES: usize = 16 << 10;
static mut EARLY: EarlyMemory = EarlyMemory { _bytes: [0; EARLY_BYTES] };
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

fn allocate_early(size: usize) -> Block {
    let size = size.max(1).next_multiple_of(16);
    let start = EARLY_USED.fetch_add(size.min(EARLY_BYTES), Ordering::Relaxed);
    if size > EARLY_BYTES || start > EARLY_BYTES - size {
        return null_mut();
    }
    // SAFETY: the range is inside the array, and no other call returns it.
    unsafe { (&raw mut EARLY).cast::<u8>().add(start).cast() }
}

/// Returns the number of bytes from `block` to the end of the early memory; `None` for a block of the allocator.
fn early_bytes(block: Block) -> Option<usize> {
    let offset = block.addr().checked_sub((&raw const EARLY).addr())?;
    EARLY_BYTES.checked_sub(offset).filter(|&rest| rest > 0)
}

/// Returns the usable size of a block; 0 if the allocator does not report it.
#[inline(always)]
fn usable_size(block: Block) -> usize {
    if !HAS_SIZES.load(Ordering::Relaxed) {
        return 0;
    }
    let Some(usable) = USABLE_SIZE.get() else { return 0 };
    // SAFETY: `malloc_usable_size` of the allocator that `block` is from; null is allowed.
    unsafe { usable(block) }
}

/// Returns the size of a new block for which `requested` bytes were requested.
#[inline(always)]
fn size_of(block: Block, requested: usize) -> usize {
    if block.is_null() || !HAS_SIZES.load(Ordering::Relaxed) { requested } else { usable_size(block) }
}

/// Records an allocation of `size` bytes.
#[inline(always)]
fn record(block: Block, size: usize) -> Block {
    if is_on() {
        heap::allocated(block, size_of(block, size));
    }
    block
}

/// Allocates with `real`, a function of the program's allocator, and records the block.
#[inline(always)]
fn allocate(real: impl FnOnce() -> Block, size: usize) -> Block {
    record(real(), size)
}

/// Allocates with `real`, a function of the C library, and records the block if these functions are recorded.
fn allocate_in_libc(real: impl FnOnce() -> Block, size: usize) -> Block {
    if LIBC_NAMES_ARE_RECORDED.load(Ordering::Relaxed) {
        record(call_once_recorded(real), size)
    } else {
        real()
    }
}

macro_rules! allocators {
    ($($name:ident $real:ident ($($argument:ident),*) $size:expr, $allocate:ident;)*) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: usize),*) -> Block {
            let size: usize = $size;
            let Some(real) = $real.get() else { return allocate_early(size) };
            // SAFETY: the next function of that name, and the caller's arguments.
            $allocate(|| unsafe { real($($argument),*) }, size)
        })*
    };
}

allocators! {
    memtrack_heap_malloc MALLOC (size) size, allocate;
    memtrack_heap_calloc CALLOC (count, size) count.saturating_mul(size), allocate;
    memtrack_heap_aligned_alloc ALIGNED_ALLOC (alignment, size) size, allocate;
    memtrack_heap_memalign MEMALIGN (alignment, size) size, allocate;
    memtrack_heap_valloc VALLOC (size) size, allocate;
    memtrack_heap_pvalloc PVALLOC (size) size, allocate;
    memtrack_heap_libc_malloc LIBC_MALLOC (size) size, allocate_in_libc;
    memtrack_heap_libc_calloc LIBC_CALLOC (count, size) count.saturating_mul(size), allocate_in_libc;
    memtrack_heap_libc_memalign LIBC_MEMALIGN (alignment, size) size, allocate_in_libc;
    memtrack_heap_libc_valloc LIBC_VALLOC (size) size, allocate_in_libc;
    memtrack_heap_libc_pvalloc LIBC_PVALLOC (size) size, allocate_in_libc;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_posix_memalign(out: *mut Block, alignment: usize, size: usize) -> c_int {
    let Some(real) = POSIX_MEMALIGN.get() else { return libc::ENOMEM };
    // SAFETY: the next allocator's function of that name, and the caller's arguments; on success it has written the block.
    unsafe {
        let result = real(out, alignment, size);
        if result == 0 {
            record(out.read(), size);
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_free(block: Block) {
    if block.is_null() || early_bytes(block).is_some() {
        return;
    }
    let Some(real) = FREE.get() else { return };
    if is_on() {
        record_free(block);
    }
    // SAFETY: the next allocator's `free`, and the caller's block.
    unsafe { real(block) };
}

/// Records that a block is about to be freed.
#[inline(always)]
fn record_free(block: Block) {
    // `free` must preserve `errno`.
    errno::preserving(|| heap::will_be_freed(block, usable_size(block)));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_realloc(old: Block, size: usize) -> Block {
    if old.is_null() {
        // SAFETY: C defines `realloc` of null as `malloc`.
        return unsafe { memtrack_heap_malloc(size) };
    }
    if let Some(rest) = early_bytes(old) {
        // SAFETY: the caller's arguments.
        return unsafe { reallocate_early(old, rest, size) };
    }
    let Some(real) = REALLOC.get() else { return null_mut() };
    // SAFETY: the next allocator's function of that name, and the caller's arguments.
    let real = || unsafe { real(old, size) };
    if is_on() { reallocate(old, size, real) } else { real() }
}

/// Moves a block from the early memory to the heap. The early memory has `rest` bytes from the block on.
///
/// # Safety
/// The caller of `realloc` must not use the old block afterwards.
#[cold]
unsafe fn reallocate_early(old: Block, rest: usize, size: usize) -> Block {
    // SAFETY: the new block has `size` bytes, and the early memory has `rest` bytes from `old` on.
    unsafe {
        let new = memtrack_heap_malloc(size);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), rest.min(size));
        }
        new
    }
}

/// Reallocates a block with `real`, and records this.
#[inline(always)]
fn reallocate(old: Block, size: usize, real: impl FnOnce() -> Block) -> Block {
    let old_size = usable_size(old);
    if size == 0 {
        // A size of 0 frees the block; some allocators then return an empty one.
        heap::will_be_freed(old, old_size);
        let new = real();
        return if new.is_null() { new } else { record(new, 0) };
    }
    heap::reallocated(old, old_size, || {
        let new = real();
        (new, size_of(new, size))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_libc_free(block: Block) {
    if block.is_null() || early_bytes(block).is_some() {
        return;
    }
    let Some(real) = LIBC_FREE.get() else { return };
    let is_recorded = LIBC_NAMES_ARE_RECORDED.load(Ordering::Relaxed);
    // SAFETY: the next allocator's function of that name, and the caller's block.
    free_by(block, is_recorded, || unsafe { real(block) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_libc_realloc(old: Block, size: usize) -> Block {
    if old.is_null() {
        // SAFETY: C defines `realloc` of null as `malloc`.
        return unsafe { memtrack_heap_libc_malloc(size) };
    }
    if let Some(rest) = early_bytes(old) {
        // SAFETY: the caller's arguments.
        return unsafe { reallocate_early(old, rest, size) };
    }
    let Some(real) = LIBC_REALLOC.get() else { return null_mut() };
    // SAFETY: the next allocator's function of that name, and the caller's arguments.
    let real = || unsafe { real(old, size) };
    match is_on() && LIBC_NAMES_ARE_RECORDED.load(Ordering::Relaxed) {
        true => reallocate(old, size, || call_once_recorded(real)),
        false => real(),
    }
}

/// Frees a block with `real`, a function other than `free`, and records this if `is_recorded`.
fn free_by(block: Block, is_recorded: bool, real: impl FnOnce()) {
    if is_recorded && is_on() {
        record_free(block);
        call_once_recorded(real);
    } else {
        real();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_free_sized(block: Block, size: usize) {
    if block.is_null() || early_bytes(block).is_some() {
        return;
    }
    let Some(real) = FREE_SIZED.get() else {
        // The program's allocator lacks this function, so a program that calls it would fail without memtrack.
        // SAFETY: the caller's block.
        return unsafe { memtrack_heap_free(block) };
    };
    // SAFETY: the next allocator's function of that name, and the caller's arguments.
    free_by(block, true, || unsafe { real(block, size) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_free_aligned_sized(block: Block, alignment: usize, size: usize) {
    if block.is_null() || early_bytes(block).is_some() {
        return;
    }
    let Some(real) = FREE_ALIGNED_SIZED.get() else {
        // SAFETY: the caller's block.
        return unsafe { memtrack_heap_free(block) };
    };
    // SAFETY: the next allocator's function of that name, and the caller's arguments.
    free_by(block, true, || unsafe { real(block, alignment, size) });
}

/// Calls the C library's function without recording its allocations. The function allocates while it holds the thread's
/// lock, and the recorder calls it at a thread's first allocation to find the stack, so recording these allocations
/// would deadlock.
#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_pthread_getattr_np(thread: libc::pthread_t, out: *mut c_void) -> c_int {
    let Some(real) = GETATTR.get() else { return libc::ENOENT };
    // SAFETY: the next function of that name, and the caller's arguments.
    heap::unrecorded(|| unsafe { real(thread, out) })
}
