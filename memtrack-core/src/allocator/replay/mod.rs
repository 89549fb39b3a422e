//! Replay: the requests that a snapshot or recording holds, run through the allocator again under other settings. What
//! would have been reserved, how fragmented, and would it have fitted?

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
