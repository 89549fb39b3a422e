//! Replay: the requests that a snapshot or recording holds, run through the allocator again under other settings. How much
//! would have been reserved, how fragmented, and would it have fitted?
//!
//! Only what leaves an event can be replayed. Settings and memory fractions that a program changes while it runs leave
//! none: the replay has the same settings throughout, and a snapshot contains only the last ones. Nor do resets of
//! statistics, which move no peak of a replay, and the flags of a `MemPool` (`use_on_oom`, `no_split`): its pools lend
//! nothing and split their blocks. memtrack's own recordings do not distinguish pools at all: blocks of a `MemPool`
//! are replayed in the default pool.

mod advice;
mod grid;
mod memory;
mod releases;
mod report;
mod requests;
mod run;

pub use grid::{GRID, replay_grid};
pub use report::{ReplayAnswer, ReplayReport, SettingsAnswer};
pub use requests::Requests;
pub use run::{Outcome, replay};
