//! CPython's objects, block by block, for `memtrack run --host`. CPython's allocator (pymalloc) takes arenas of 256 KiB or
//! 1 MiB from the system and allocates blocks of up to 512 bytes in them, so `malloc` sees neither. CPython has an interface
//! for such hooks: its allocators can be replaced by others that call them.
//!
//! - `interpreter` finds CPython, in the program or in a library that is loaded later, and replaces its arena allocator.
//! - `arenas` is that allocator. From the first arena on, it also replaces the allocators of the domains `mem` and `obj`.
//! - `domains` has the functions of these domains: they call the original, and record the block if it lies in an arena.
//! - `calls` sets marks at the calls of functions that the user has named.
//! - `sizes` holds the size of each recorded block, because a free receives no size.
//!
//! **Why only blocks in arenas?** Larger blocks, and all blocks of the domain `raw`, come from `malloc`, which records them.
//! So each block is recorded once, whatever lies between: CPython's debug hooks, `tracemalloc`, or the program's own hooks.
//!
//! **Why are the domains replaced at the first arena, not before `main`?** CPython chooses its allocators when it is
//! initialised (`PYTHONMALLOC`, `-X dev`), and would drop those that were set before. With `PYTHONMALLOC=malloc` there is no
//! arena and nothing is replaced. The first block of an interpreter is therefore unknown.
//!
//! **What can a program notice?** `sys._debugmallocstats()` prints nothing about pymalloc, and CPython's own tests cannot
//! name the allocator (`_testinternalcapi.pymem_getallocatorsname`), because both recognise pymalloc by its address. With
//! `PYTHONMALLOCSTATS`, which prints the same, nothing is replaced.

mod arenas;
#[cfg(target_arch = "x86_64")]
mod calls;
/// On other processors, the functions of Python are not read.
#[cfg(not(target_arch = "x86_64"))]
mod calls {
    #[derive(Clone, Copy)]
    pub(super) struct Api;

    impl Api {
        pub(super) fn find(_look_up: impl Fn(&std::ffi::CStr) -> *mut std::ffi::c_void) -> Option<Self> {
            None
        }
    }

    pub(super) fn prepare() {}

    pub(super) fn expect(_interpreter: &'static super::interpreter::Interpreter) {}

    #[inline(always)]
    pub(super) fn set_if_due() {}
}
mod domains;
mod interpreter;
mod sizes;

pub(super) use interpreter::prepare;
