//! Workloads: sequences of requests in a small language, with one JSON object per line, that run on simulated
//! devices. A result lists the allocator's actions for each operation in a form that does not depend on addresses,
//! so that two allocators (or one allocator under two settings) can be compared line by line. docs/FILES.md in the
//! repository describes the formats of workloads and results.

mod operation;
mod read;
mod result;
mod run;

pub use operation::{Config, Operation};
pub use read::{Workload, WorkloadError};
pub use run::{record, simulate};
