//! The library that `memtrack run` preloads into a program: memtrack-core's CUDA hook and recorder, and nothing else.
//! The hook starts recording at the first call of the driver that it sees; here is only how the library begins and ends.
//! Its `dlsym` and the driver's functions come from memtrack-core and are exported.
#![allow(unsafe_code)]

use memtrack_core::cuda::run;

extern "C" fn begin() {
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
