//! Reads and writes operator traces. These are JSON Lines files of version 1, plain or compressed, as
//! described in docs/FILES.md in the repository.

mod detect;
mod error;
mod line;
mod numbers;
mod read;
mod resolve;
mod roles;
mod write;

pub use detect::{is_operator_trace, looks_like_trace};
pub use error::TraceError;
/// Re-exports the types that make up a trace.
pub use memtrack_model::optrace::*;
pub use read::{Mode, ReadTrace, read};
pub use roles::Role;
pub(crate) use roles::for_each_tensor;
pub use write::{save, write};
