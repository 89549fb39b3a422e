//! Tasks: futures that a program tracks, so that the memory of each one is known. `memtrack_core::tasks` documents the functions
//! for programs.
//!
//! While a tracked future is polled, its id is in a thread-local word that each event of the host heap copies into the field
//! that is a stream on other devices (`Event::recorded_task`). An id contains the number of the task's place, so that blocks
//! have a place even if the task has no row in the table any more.
//!
//! - `future`: the future, and the thread's current task.
//! - `places`: the places at which tasks are made, with their counts. Their number is bounded.
//! - `table`: the rows of the newest tasks. A poll does not touch it, only the begin and the end of a task do.
//!
//! **Why no runtime's own task ids?** tokio's are of tokio only, are of no use to `join_all` inside a task, and to find the current
//! one takes a second thread-local. So any runtime, and any `select!` inside a task, can poll a tracked future.
//!
//! Under `memtrack run` a program has no tasks: the command reads events only, and no table of the program.

mod future;
#[cfg(feature = "record")]
mod places;
#[cfg(feature = "record")]
mod table;
#[cfg(all(test, feature = "record"))]
mod tests;

pub use future::{CurrentTask, TaskGuard, Tracked, current, track_at};
#[cfg(feature = "record")]
pub(crate) use table::{clear, running, until};

/// The maximum memory of the tables.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = places::MAX_BYTES + table::MAX_BYTES;
