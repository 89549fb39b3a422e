//! Access to the library's thread-local variables without the loader. To find them, the loader may call the program's
//! `malloc` (whenever a library with thread-locals was loaded since the thread's last access), and recording that
//! allocation needs these variables: the thread would deadlock, or recurse endlessly. The variables of a library that
//! is loaded at the start are at the same distance from every thread's thread pointer, so that one result of the
//! loader is enough for all threads.
//!
//! On x86-64, where compilers always emit a call to the loader in libraries, the linker redirects that call here
//! (`--wrap=__tls_get_addr`). On aarch64 the loader itself replaces the call by the distance.
//!
//! **Why not `initial-exec`?** That TLS model does the same, but selecting it is not stable in the compiler.

use std::arch::asm;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The argument that compilers pass: the number of a binary, and an offset among the binary's variables.
#[repr(C)]
pub(super) struct TlsIndex {
    binary: usize,
    offset: usize,
}

unsafe extern "C" {
    /// The loader's `__tls_get_addr`.
    fn __real___tls_get_addr(index: *const TlsIndex) -> *mut u8;
}

/// The distance from the thread pointer to this library's variables; 0 if it is not known yet.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);
/// Whether the distance is computed from the loader's next result.
static PREPARING: AtomicIsize = AtomicIsize::new(0);
/// The largest plausible distance: no program has so many variables in front of a library's.
const MAX_DISTANCE: isize = 64 << 20;

#[inline(always)]
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the word at a thread pointer is that pointer itself.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure)) };
    pointer
}

/// Called wherever this library needs the address of a thread-local variable.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap___tls_get_addr(index: *const TlsIndex) -> *mut u8 {
    // SAFETY: the compiler passes a static.
    let offset = unsafe { (*index).offset };
    let distance = DISTANCE.load(Ordering::Relaxed);
    if distance != 0 {
        let variables = thread_pointer().wrapping_add_signed(distance);
        return std::ptr::with_exposed_provenance_mut(variables.wrapping_add(offset));
    }
    // SAFETY: the call that the compiler emitted.
    let found = unsafe { __real___tls_get_addr(index) };
    if PREPARING.load(Ordering::Relaxed) != 0 {
        let distance = found.addr().wrapping_sub(offset).wrapping_sub(thread_pointer()) as isize;
        // Variables of libraries that are loaded at the start are below the thread pointer; others are elsewhere.
        if (-MAX_DISTANCE..0).contains(&distance) {
            DISTANCE.store(distance, Ordering::Relaxed);
        }
    }
    found
}

/// Computes the distance from one call of the loader. The process has one thread, and the library was loaded with the
/// program.
pub(super) fn prepare() {
    thread_local! {
        static PROBE: std::cell::Cell<u8> = const { std::cell::Cell::new(1) };
    }
    PREPARING.store(1, Ordering::Relaxed);
    PROBE.set(std::hint::black_box(2));
    PREPARING.store(0, Ordering::Relaxed);
}
