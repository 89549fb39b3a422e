//! The library that `memtrack run` preloads into a program: memtrack's CUDA hook and recorder, and nothing else. The
//! hook starts recording at the first driver call; this crate only initialises the library when it is loaded, and makes
//! the last reports to the command when the program ends. The exported `dlsym` and driver functions come from
//! memtrack-cuda.
//!
//! **Why does it not depend on memtrack-core?** Each build of the command also builds this library, optimised. This takes
//! 11 s of processor time. With memtrack-core's reports, which can never be requested here, it would take 27 s. The library
//! includes only the part of `memtrack-report` that a running program needs to report about itself (no feature `all`).
#![allow(unsafe_code)]

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod ends;

#[cfg(target_os = "linux")]
mod heap;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod jemalloc;
/// On other processors, jemalloc's pages, and so the sizes of its blocks, depend on the machine it was built on.
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
mod jemalloc {
    pub(super) const fn prepare() {}
}

#[cfg(target_os = "linux")]
mod mapped;

#[cfg(target_os = "linux")]
mod next_function;

#[cfg(target_os = "linux")]
mod pages;

#[cfg(target_os = "linux")]
mod private_heap;

#[cfg(target_os = "linux")]
mod python;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tls;
/// On other processors, the library's thread-local variables are not checked.
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
mod tls {
    pub(super) const fn is_set_up() -> bool {
        true
    }
}

use memtrack_cuda::run;
#[cfg(target_os = "linux")]
use memtrack_recorder::allocator::TrackingAllocator;

/// Counts the memory that the recorder holds (`own_bytes`).
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: TrackingAllocator<&private_heap::PrivateHeap> = TrackingAllocator::new(&PRIVATE_HEAP);
#[cfg(target_os = "linux")]
static PRIVATE_HEAP: private_heap::PrivateHeap = private_heap::PrivateHeap::new();

extern "C" fn begin() {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    ends::prepare();
    #[cfg(target_os = "linux")]
    private_heap::prepare();
    #[cfg(target_os = "linux")]
    if memtrack_run::wants_heap() {
        heap::prepare();
        mapped::prepare();
        jemalloc::prepare();
    }
    run::on_library_load();
    #[cfg(target_os = "linux")]
    if memtrack_run::heap::is_on() {
        python::prepare();
    }
}

extern "C" fn end() {
    run::on_library_unload();
}

// SAFETY: the loader calls the entries of these sections as functions (they ignore the arguments that it passes), after
// it has initialised the libraries that this one needs, and before it finalises those.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static BEGIN: extern "C" fn() = begin;
// SAFETY: the same as for `BEGIN`.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = end;
