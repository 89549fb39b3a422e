//! Shared memory between a recorded program and the command `memtrack run`. In the program, hooks write events here and
//! do nothing else: no thread, descriptor, file or message is needed. The command reads the memory, while the program
//! runs and after it has ended, and writes the recording. So a program that is killed loses nothing that a hook has
//! written.
//!
//! The memory is one anonymous file (`memfd`) of the command, the *region*, divided into *extents* of 64 KiB. The first
//! extent has the `RegionHeader`. The others are reserved by the command before they can be taken, so that a lack of
//! memory cannot end the program with `SIGBUS`. A process takes an extent when it needs one. No other process can take
//! that extent until the first process has ended and the command has freed the extent.
//!
//! An extent has 16 pages. Its first page is an `ExtentHeader`; the process takes each of the others for one purpose
//! ([`PageKind`]): the events of a thread and device, the log of everything that events refer to by number, the sums
//! of a thread or of scopes. The command frees pages of events and of the log when it has read them.
//!
//! - `layout`: the structures, which both sides read and write
//! - `arena`: the program's side
//! - `region`: the command's side
//! - `protocol`: how pages pass from one side to the other
//! - `room`: the pages that are left for events, and which events may take them
//! - [`log`]: the records in the log
//! - `command`: the program's information about the command
//! - `command_line`: the program's arguments, which are also in the log
//!
//! **Why pages of 4 KiB and not larger chunks?** Each thread has a page per device, and a program may have 10,000 threads.
//! Taking a page costs two atomic operations per 84 events.
//!
//! **Why does no event lack its record?** A record is complete in the log before any thread can write an event that refers to
//! it. The command reads the lengths of all pages of events first and the log afterwards.
//!
//! **Why does the program map extents with `mremap`?** The program keeps no descriptor, and it cannot open the file again
//! after it has changed its root or its rights. `mremap` with an old size of 0 maps the file of an existing mapping once
//! more.
#![allow(unsafe_code)]

mod arena;
mod command;
mod command_line;
mod counters;
mod layout;
pub mod log;
mod protocol;
mod region;
mod room;

/// The atomics that `protocol` uses. The model checker (`tests/loom`) compiles that file with loom's atomics instead.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

pub(crate) use arena::{append, arena, is_connected, log_bytes_of_stack, set_number};
pub use arena::{
    connect, count_this_program, count_unrecorded_program, has_arena, is_beyond_limit, note_bypass,
    note_bypassed_driver,
};
pub(crate) use command_line::log_command_line;
pub(crate) use counters::{add_to_level, count, publish_counted_peak, publish_sampling};
pub use layout::{Counter, EVENTS_PER_PAGE, PageKind};
pub(crate) use layout::{PAGE_CONTENT_BYTES, page_content};
pub use region::{EventPage, LogState, ProcessView, Region, SumsOfScopes};
pub(crate) use room::Purpose;
