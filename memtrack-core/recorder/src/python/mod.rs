//! The lines of Python: under `memtrack run`, the stack of a thread that runs Python also contains its Python frames.
//! CPython keeps them in memory of its own, which is read here without the GIL and without calling anything that
//! allocates, locks, counts a reference or switches threads.
//!
//! - `elf`, `interpreter`: find the interpreter among the loaded binaries, and the calling thread's state
//! - `suspension`: while libraries are unloaded, nothing is read
//! - `layout`: the offsets of CPython's structures, by version
//! - `memory`: reads memory, with or without a check that it is mapped
//! - `walk`: the hot path: reads the frames into a buffer and adds them to the hash of the stack
//! - `codes`: detects that the address of a code object was reused
//! - `location`, `lines`, `text`: the cold path: file, function and line of a frame
//! - `word`: the form of a frame in a recorded stack
//! - `table`: gives each location a number and reports it to the command
//! - `wanted`, `functions`: which functions the user has named, and how they are read, for marks at their calls
//! - `merge`: puts the frames at their places among the native ones
//! - `stacks`: a cache of the ids of stacks
//!
//! A recorded stack has its Python frames as [`FrameWord`]s; the command turns them into addresses with names.
//!
//! **Why is no name ever stale?** A frame is identified by the address of its code object and by the instruction. The
//! address can be reused only after the code object was freed, and `codes` sees each such free before the memory is
//! released.
//!
//! **When are pointers checked?** The frames of a thread that holds the GIL cannot change or be freed during its hook,
//! so they are read directly once a first walk with checks has found only code objects. A code object is read with a
//! check once for each of its instructions; what it refers to, directly. A thread that has released the
//! GIL may lose its state to the end of the interpreter at any moment, so its memory is always read by the kernel
//! (`process_vm_readv`), except that of the main thread, which usually is the one that ends the interpreter.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod codes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod elf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod functions;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod interpreter;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod layout;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lines;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod location;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
mod merge;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stacks;
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", not(test)))]
mod suspension;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod table;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod text;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod unsupported;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod walk;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod wanted;
mod word;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use interpreter::notice;
pub use merge::{UNMERGED, merge};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use stacks::{stack_with, store};
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", not(test)))]
pub(crate) use suspension::suspend;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) use unsupported::{PythonFrames, stack_with, store};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use walk::PythonFrames;
pub use word::{FrameWord, MAX_PYTHON_FRAMES};

/// The maximum memory of all tables, in bytes.
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
pub(crate) const MAX_BYTES: usize = table::MAX_BYTES + codes::MAX_BYTES + stacks::MAX_BYTES;
