//! Replays the requests of a snapshot or recording in the allocator under other settings, to find out how much memory
//! would have been reserved, how fragmented it would have been, and whether the requests would have succeeded.
//!
//! Only requests that were recorded as events can be replayed. Changes to settings and memory fractions at run time
//! are not recorded: a replay uses the same settings throughout, and a snapshot contains only the last settings. Resets
//! of statistics are not recorded either, but they do not affect the peaks of a replay. The flags of a `MemPool`
//! (`use_on_oom`, `no_split`) are also missing, so replays use the defaults. memtrack's recordings do not contain pools
//! at all, so blocks of a `MemPool` are replayed in the default pool.

mod advice;
mod grid;
mod releases;
mod requests;
mod results;
mod run;

pub use grid::{GRID, replay_grid};
pub use requests::Requests;
pub use results::{ReplayReport, ReplayRow};
pub use run::{Outcome, replay};
