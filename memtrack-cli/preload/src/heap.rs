//! C's heap, for `memtrack run --host`: the functions that its second library has `malloc` and its siblings jump to. Each
//! calls the allocator that the program would have called, and tells the recorder. Nothing jumps here otherwise.

use memtrack_cuda::run::{self, heap};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

type Block = *mut c_void;

/// A function of the next allocator; null before it was looked up.
struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// The function; `None` on a thread that is looking one up, for which the C library may want memory, and where the
    /// allocator has no such function.
    #[inline(always)]
    fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { Some(found) }
    }

    #[cold]
    fn find(&self) -> Option<*mut c_void> {
        thread_local! {
            static FINDING: Cell<bool> = const { Cell::new(false) };
        }
        if FINDING.replace(true) {
            return None;
        }
        let found = run::next_symbol(self.name);
        FINDING.set(false);
        self.found.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

static MALLOC: Real = Real::new(c"malloc");
static CALLOC: Real = Real::new(c"calloc");
static REALLOC: Real = Real::new(c"realloc");
static FREE: Real = Real::new(c"free");
static POSIX_MEMALIGN: Real = Real::new(c"posix_memalign");
static ALIGNED_ALLOC: Real = Real::new(c"aligned_alloc");
static MEMALIGN: Real = Real::new(c"memalign");
static VALLOC: Real = Real::new(c"valloc");
static PVALLOC: Real = Real::new(c"pvalloc");
static GETATTR: Real = Real::new(c"pthread_getattr_np");
static USABLE_SIZE: Real = Real::new(c"malloc_usable_size");

/// Looks everything up, while the process has one thread.
pub(super) fn prepare() {
    let all = [
        &MALLOC,
        &CALLOC,
        &REALLOC,
        &FREE,
        &POSIX_MEMALIGN,
        &ALIGNED_ALLOC,
        &MEMALIGN,
        &VALLOC,
        &PVALLOC,
        &GETATTR,
        &USABLE_SIZE,
    ];
    for real in all {
        real.get();
    }
}

/// What is handed out while the allocator is being looked up: zeroed, and never taken back.
#[repr(align(16))]
struct Early {
    _bytes: [u8; EARLY_BYTES],
}
const EARLY_BYTES: usize = 16 << 10;
static mut EARLY: Early = Early { _bytes: [0; EARLY_BYTES] };
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

fn early(size: usize) -> Block {
    let size = size.max(1).next_multiple_of(16);
    let start = EARLY_USED.fetch_add(size.min(EARLY_BYTES), Ordering::Relaxed);
    if size > EARLY_BYTES || start > EARLY_BYTES - size {
        return null_mut();
    }
    // SAFETY: inside of the array, and of this call alone.
    unsafe { (&raw mut EARLY).cast::<u8>().add(start).cast() }
}

/// Bytes from `block` to the end of what was handed out early; `None` for a block of the allocator's.
fn early_bytes(block: Block) -> Option<usize> {
    let offset = block.addr().checked_sub((&raw const EARLY).addr())?;
    EARLY_BYTES.checked_sub(offset).filter(|&rest| rest > 0)
}

/// What a block has room for.
#[inline(always)]
fn size_of(block: Block) -> usize {
    let Some(usable) = USABLE_SIZE.get() else { return 0 };
    // SAFETY: the function of that name, and a block of the same allocator's, or null.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(Block) -> usize>(usable)(block) }
}

/// Tells of a block that was asked for with `size` bytes.
#[inline(always)]
fn tell(block: Block, size: usize) -> Block {
    if heap::is_on() {
        heap::allocated(block, if block.is_null() { size } else { size_of(block) });
    }
    block
}

macro_rules! allocators {
    ($($name:ident $real:ident ($($argument:ident),*) $size:expr;)*) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: usize),*) -> Block {
            let size: usize = $size;
            let Some(real) = $real.get() else { return early(size) };
            // SAFETY: the function of that name, and the caller's arguments.
            let block = unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($(allocators!(@usize $argument)),*) -> Block>(real)($($argument),*)
            };
            tell(block, size)
        })*
    };
    (@usize $argument:ident) => { usize };
}

allocators! {
    memtrack_heap_malloc MALLOC (size) size;
    memtrack_heap_calloc CALLOC (count, size) count.saturating_mul(size);
    memtrack_heap_aligned_alloc ALIGNED_ALLOC (alignment, size) size;
    memtrack_heap_memalign MEMALIGN (alignment, size) size;
    memtrack_heap_valloc VALLOC (size) size;
    memtrack_heap_pvalloc PVALLOC (size) size;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_posix_memalign(out: *mut Block, alignment: usize, size: usize) -> c_int {
    let Some(real) = POSIX_MEMALIGN.get() else { return libc::ENOMEM };
    // SAFETY: the function of that name, and the caller's arguments; on success it has written the block.
    unsafe {
        let real = transmute::<*mut c_void, unsafe extern "C" fn(*mut Block, usize, usize) -> c_int>(real);
        let result = real(out, alignment, size);
        if result == 0 {
            tell(out.read(), size);
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
    if heap::is_on() {
        // `free` leaves it as it is.
        // SAFETY: every thread has one.
        let errno = unsafe { *libc::__errno_location() };
        heap::will_be_freed(block, size_of(block));
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    // SAFETY: the function of that name, and the caller's block.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(Block)>(real)(block) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_realloc(old: Block, size: usize) -> Block {
    if old.is_null() {
        // SAFETY: the same by C's rules.
        return unsafe { memtrack_heap_malloc(size) };
    }
    if let Some(rest) = early_bytes(old) {
        // SAFETY: a new block of `size` bytes, and at most that many which can be read.
        unsafe {
            let new = memtrack_heap_malloc(size);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), rest.min(size));
            }
            return new;
        }
    }
    let Some(real) = REALLOC.get() else { return null_mut() };
    // SAFETY: the function of that name, and the caller's arguments.
    let real =
        || unsafe { transmute::<*mut c_void, unsafe extern "C" fn(Block, usize) -> Block>(real)(old, size) };
    if !heap::is_on() {
        return real();
    }
    let old_size = size_of(old);
    if size == 0 {
        // A free; some allocators hand out an empty block then.
        heap::will_be_freed(old, old_size);
        let new = real();
        return if new.is_null() { new } else { tell(new, 0) };
    }
    heap::reallocated(old, old_size, || {
        let new = real();
        (new, if new.is_null() { size } else { size_of(new) })
    })
}

/// It takes memory while it holds a lock of the thread's that it needs to say where the stack is, which the recorder asks
/// when a thread takes memory for the first time: what it takes is not recorded.
#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_pthread_getattr_np(thread: libc::pthread_t, out: *mut c_void) -> c_int {
    let Some(real) = GETATTR.get() else { return libc::ENOENT };
    heap::unrecorded(|| {
        // SAFETY: the function of that name, and the caller's arguments.
        unsafe {
            transmute::<*mut c_void, unsafe extern "C" fn(libc::pthread_t, *mut c_void) -> c_int>(real)(
                thread, out,
            )
        }
    })
}
