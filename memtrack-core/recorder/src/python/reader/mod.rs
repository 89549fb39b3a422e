//! Reads the frames of Python in the program. CPython keeps them in memory of its own, which is read here without the GIL
//! and without calling anything that allocates, locks, counts a reference or switches threads.
//!
//! - `elf`, `interpreter`: find the interpreter among the loaded binaries, and the calling thread's state
//! - `suspension`: while libraries are unloaded, nothing is read
//! - `layout`: the offsets of CPython's structures, by version
//! - `memory`: reads memory, with or without a check that it is mapped
//! - `walk`: the hot path: reads the frames into a buffer and adds them to the hash of the stack
//! - `codes`: detects that the address of a code object was reused
//! - `location`, `lines`, `text`: the cold path: file, function and line of a frame
//! - `table`: gives each location a number and reports it to the command
//! - `wanted`, `functions`: which functions the user has named, and how they are read, for marks at their calls
//! - `stacks`: a cache of the ids of stacks
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

mod codes;
mod elf;
pub mod functions;
mod interpreter;
mod layout;
mod lines;
mod location;
mod memory;
mod stacks;
#[cfg(all(target_env = "gnu", not(test)))]
mod suspension;
mod table;
mod text;
mod walk;
mod wanted;

pub(crate) use interpreter::notice;
pub(crate) use stacks::{stack_with, store};
#[cfg(all(target_env = "gnu", not(test)))]
pub(crate) use suspension::suspend;
pub(crate) use walk::PythonFrames;

/// The maximum memory of all tables, in bytes.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = table::MAX_BYTES + codes::MAX_BYTES + stacks::MAX_BYTES;
