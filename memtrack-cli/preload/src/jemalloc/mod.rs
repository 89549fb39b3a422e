//! The blocks of a jemalloc that is linked into the program, for `memtrack run --host`: in Rust, `tikv-jemallocator` as the
//! global allocator. Its calls do not pass through the loader. So memtrack finds it by the program's symbol table, and installs
//! hooks in it (`experimental.hooks.install`), which jemalloc offers for this purpose since 5.2.
//!
//! The hooks run after a block was allocated and before it is freed, on the thread that does so, without a lock. While there are
//! any, jemalloc takes its slow path, which costs the program some 15 ns per call in addition to the recording.
//!
//! **What does the program notice?** `experimental.hooks` has one slot less (of four). jemalloc is initialised before `main`, as by
//! the program's first allocation.
//!
//! **Where is no jemalloc found?** In a stripped program, in a library, and if its functions are spread over the program by
//! link-time optimisation. Then the memory that it maps is recorded, as for other allocators that are linked into a program.

mod find;
mod sizes;

use crate::heap::is_on;
use find::{Found, find};
use memtrack_recorder::{errno, mapped};
use memtrack_run::heap;
use sizes::{PAGE_BYTES, usable, usable_aligned};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut, with_exposed_provenance};

type Block = *mut c_void;

/// jemalloc's `mallctl`: a name, where to read the old value, and the new one.
type Control = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// Finds jemalloc in the program, and installs the hooks. Called before `main`, and before recording begins.
pub(super) fn prepare() {
    let Some(Found { control, code }) = find() else { return };
    // SAFETY: jemalloc's function of this name has this signature, and the program has been relocated.
    let is_installed =
        unsafe { install(transmute::<*const c_void, Control>(with_exposed_provenance(control as usize))) };
    if is_installed {
        mapped::set_allocator_code(code);
    }
}

/// The hooks as jemalloc expects them (`hooks_t`).
#[repr(C)]
struct Hooks {
    alloc: unsafe extern "C" fn(*mut c_void, c_int, Block, usize, *const usize),
    free: unsafe extern "C" fn(*mut c_void, c_int, Block, *const usize),
    expand: unsafe extern "C" fn(*mut c_void, c_int, Block, usize, usize, usize, *const usize),
    extra: *mut c_void,
}

/// Installs the hooks if this version of jemalloc has the interface as it is known. Returns whether they are installed.
///
/// # Safety
/// The function must be jemalloc's `mallctl`.
unsafe fn install(control: Control) -> bool {
    let mut version: *const c_char = null();
    let mut bytes = size_of_val(&version);
    // SAFETY: `version` is a pointer to a static text, and its size is passed.
    let result =
        unsafe { control(c"version".as_ptr(), (&raw mut version).cast(), &raw mut bytes, null_mut(), 0) };
    if result != 0 || version.is_null() {
        return false;
    }
    // SAFETY: the version is a C string.
    let version = unsafe { CStr::from_ptr(version) }.to_bytes();
    if ![b"5.2.", b"5.3."].iter().any(|known| version.starts_with(*known)) {
        return false;
    }
    let mut hooks = Hooks { alloc: allocated, free: will_be_freed, expand: expanded, extra: null_mut() };
    let mut handle: *mut c_void = null_mut();
    let mut bytes = size_of_val(&handle);
    // SAFETY: both values have the types that these versions expect, which check the sizes, and copy the hooks.
    let result = unsafe {
        control(
            c"experimental.hooks.install".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut bytes,
            (&raw mut hooks).cast(),
            size_of_val(&hooks),
        )
    };
    result == 0
}

/// A call that allocates, by jemalloc's number of it. The sizes of its arguments are in the order of its parameters.
mod call {
    use std::ffi::c_int;

    pub(super) const MALLOC: c_int = 0;
    pub(super) const POSIX_MEMALIGN: c_int = 1;
    pub(super) const ALIGNED_ALLOC: c_int = 2;
    pub(super) const CALLOC: c_int = 3;
    pub(super) const MEMALIGN: c_int = 4;
    pub(super) const VALLOC: c_int = 5;
    pub(super) const MALLOCX: c_int = 6;
    pub(super) const REALLOC: c_int = 7;
    pub(super) const RALLOCX: c_int = 8;
}

/// Returns the size of the block that a call requests.
fn size_for(kind: c_int, arguments: [usize; 3]) -> Option<usize> {
    let [first, second, third] = arguments;
    // The lowest bits of the flags are the logarithm of the alignment.
    let aligned = |size: usize, flags: usize| match flags & 63 {
        0 => usable(size),
        alignment => usable_aligned(size, 1 << alignment),
    };
    Some(match kind {
        call::MALLOC => usable(first),
        call::CALLOC => usable(first.saturating_mul(second)),
        call::MALLOCX => aligned(first, second),
        call::REALLOC => usable(second),
        call::RALLOCX => aligned(second, third),
        call::POSIX_MEMALIGN => usable_aligned(third, second),
        call::ALIGNED_ALLOC | call::MEMALIGN => usable_aligned(second, first),
        call::VALLOC => usable_aligned(first, PAGE_BYTES),
        _ => return None,
    })
}

unsafe extern "C" fn allocated(
    _: *mut c_void,
    kind: c_int,
    block: Block,
    result: usize,
    arguments: *const usize,
) {
    // SAFETY: jemalloc passes three arguments, of which the call's own ones are set. The others are not used.
    let Some(size) = size_for(kind, unsafe { arguments.cast::<[usize; 3]>().read() }) else { return };
    // This function returns an error's number. If there was one, the block is not set.
    let block = if kind == call::POSIX_MEMALIGN && result != 0 { null_mut() } else { block };
    if !block.is_null() {
        sizes::insert(block.addr(), size);
    }
    if is_on() {
        errno::preserving(|| heap::allocated(block, size));
    }
}

unsafe extern "C" fn will_be_freed(_: *mut c_void, _: c_int, block: Block, _: *const usize) {
    if is_on()
        && let Some(size) = sizes::size_of(block.addr())
    {
        errno::preserving(|| heap::will_be_freed(block, size));
    }
}

/// Records that a block was reallocated in place. If it moves, jemalloc calls the other hooks.
unsafe extern "C" fn expanded(
    _: *mut c_void,
    _: c_int,
    block: Block,
    old_bytes: usize,
    new_bytes: usize,
    _: usize,
    _: *const usize,
) {
    sizes::insert(block.addr(), new_bytes);
    if is_on() && old_bytes != new_bytes {
        errno::preserving(|| {
            heap::reallocated(block, old_bytes, || (block, new_bytes));
        });
    }
}
