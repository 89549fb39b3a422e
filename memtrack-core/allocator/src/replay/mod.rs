//! Replay: the requests in a snapshot or recording, run through the allocator again under other settings, to
//! find how much would have been reserved, how fragmented it would have been, and whether it would have
//! fitted.
//!
//! Only requests that leave an event can be replayed. Settings and memory fractions that a program changes
//! while it runs leave none: the replay has the same settings throughout, and a snapshot contains only the
//! last ones. The same holds for resets of statistics, which do not affect the peaks of a replay, and for the
//! flags of a `MemPool` (`use_on_oom`, `no_split`): its pools lend nothing and split their blocks. memtrack's
//! own recordings do not distinguish pools at all: blocks of a `MemPool` are replayed in the default pool.

mod advice;
mod grid;
mod memory;
mod releases;
mod requests;
mod results;
mod run;

pub use grid::{GRID, replay_grid};
pub use requests::Requests;
pub use results::{ReplayAnswer, ReplayReport, SettingsAnswer};
pub use run::{Outcome, replay};
