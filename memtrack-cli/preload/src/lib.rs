//! The library that `memtrack run` preloads into a program: memtrack's CUDA hook and recorder, and nothing else.
//! The hook starts recording at the first call of the driver that it sees; here is only how the library begins, and how
//! it and the program end.
//! Its `dlsym` and the driver's functions come from memtrack-cuda and are exported.
#![allow(unsafe_code)]

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod ends;

#[cfg(target_os = "linux")]
mod heap;

#[cfg(target_os = "linux")]
mod own_memory;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tls;

use memtrack_cuda::run;
#[cfg(target_os = "linux")]
use memtrack_recorder::host::TrackingAllocator;

/// Counts what the recorder holds (`host::own_bytes`).
#[cfg(target_os = "linux")]
#[global_allocator]
static OWN: TrackingAllocator<&own_memory::OwnMemory> = TrackingAllocator::new(&OWN_MEMORY);
#[cfg(target_os = "linux")]
static OWN_MEMORY: own_memory::OwnMemory = own_memory::OwnMemory::new();

extern "C" fn begin() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    tls::prepare();
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    ends::prepare();
    #[cfg(target_os = "linux")]
    own_memory::prepare();
    #[cfg(target_os = "linux")]
    if run::wants_heap() {
        heap::prepare();
    }
    run::library_begins();
}

extern "C" fn end() {
    run::library_ends();
}

// SAFETY: the loader calls what lies in these sections, functions without arguments (those it passes are ignored), after
// the libraries that this one needs were initialised, and before they are ended.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static BEGIN: extern "C" fn() = begin;
// SAFETY: as above.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = end;
