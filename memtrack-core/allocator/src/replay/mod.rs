//! Replay: the requests that a snapshot or recording holds, run through the allocator again under other settings. What
//! would have been reserved, how fragmented, and would it have fitted?
//!
//! Only what leaves an event can be replayed. Settings and memory fractions that a program changes in the middle of its
//! run leave none: the replay has one setting throughout, and a snapshot names the last one only. Neither do resets of
//! statistics, which move no peak of a replay, and the flags of a `MemPool` (`use_on_oom`, `no_split`): its pools lend
//! nothing and split their blocks. A recording of memtrack's own does not tell pools apart at all: blocks of a `MemPool`
//! are replayed in the default pool.

mod advice;
mod grid;
mod memory;
mod releases;
mod report;
mod requests;
mod run;

pub use grid::{GRID, replay_grid};
pub use report::ReplayReport;
pub use requests::Requests;
pub use run::{Outcome, replay};
