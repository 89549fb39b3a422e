//! Access to the library's thread-local variables without the loader. To find them, the loader may call the program's
//! `malloc` (whenever a library with thread-locals was loaded since the thread's last access), and recording that
//! allocation needs these variables: the thread would wait for itself, or call itself without end. A library that is
//! loaded from the start has its variables at the same distance from every thread's pointer, so that one result of
//! the loader is enough for all threads.
//!
//! On x86-64, where compilers have no other way for libraries, the linker redirects the call here
//! (`--wrap=__tls_get_addr`). On aarch64 the loader itself replaces the call by the distance.
//!
//! **Why not `initial-exec`?** The compiler's model would do the same, but is not stable.

use std::arch::asm;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The argument from the compiler: a binary by its number, and an offset in its variables.
#[repr(C)]
pub(super) struct TlsIndex {
    binary: usize,
    offset: usize,
}

unsafe extern "C" {
    /// The loader's function.
    fn __real___tls_get_addr(index: *const TlsIndex) -> *mut u8;
}

/// The distance from a thread's pointer to this library's variables; 0: not known yet.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);
/// Whether the next result is kept.
static PREPARING: AtomicIsize = AtomicIsize::new(0);
/// No program has more variables in front of a library's.
const FARTHEST: isize = 64 << 20;

#[inline(always)]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: a thread's pointer points to itself.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure)) };
    pointer
}

/// Called by all of this library for the address of a variable.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap___tls_get_addr(index: *const TlsIndex) -> *mut u8 {
    // SAFETY: the compiler's own, which stays.
    let offset = unsafe { (*index).offset };
    let distance = DISTANCE.load(Ordering::Relaxed);
    if distance != 0 {
        let variables = thread_pointer().wrapping_add_signed(distance);
        return std::ptr::with_exposed_provenance_mut(variables.wrapping_add(offset));
    }
    // SAFETY: as the compiler would have called it.
    let found = unsafe { __real___tls_get_addr(index) };
    if PREPARING.load(Ordering::Relaxed) != 0 {
        let distance = found.addr().wrapping_sub(offset).wrapping_sub(thread_pointer()) as isize;
        // Below the pointer; variables of libraries that were loaded later are elsewhere.
        if (-FARTHEST..0).contains(&distance) {
            DISTANCE.store(distance, Ordering::Relaxed);
        }
    }
    found
}

/// Calls the loader once. The process has one thread, and the library was loaded with the program.
pub(super) fn prepare() {
    thread_local! {
        static ANY: std::cell::Cell<u8> = const { std::cell::Cell::new(1) };
    }
    PREPARING.store(1, Ordering::Relaxed);
    ANY.set(std::hint::black_box(2));
    PREPARING.store(0, Ordering::Relaxed);
}
