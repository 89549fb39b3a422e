//! Workloads: sequences of requests in a small language, one JSON object per line, run on simulated devices.
//! Results describe for each operation the allocator's actions, in a form that does not depend on addresses,
//! so that two allocators (or one under two settings) can be compared line by line. The repository's
//! docs/FILES.md describes both.

mod operation;
mod places;
mod read;
mod result;
mod run;
mod state;

pub use operation::{Config, Operation};
pub use read::{Workload, WorkloadError};
pub use run::{record, simulate};
