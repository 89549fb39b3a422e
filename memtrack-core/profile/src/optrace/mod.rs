//! Reads and writes operator traces: JSON Lines, version 1 (docs/FILES.md in the repository), plain or
//! compressed.

mod begins;
mod circle;
mod error;
mod line;
mod numbers;
mod read;
mod resolve;
mod write;

pub use begins::{is_operator_trace, looks_like_trace};
pub use error::TraceError;
/// Re-exports the types of a trace.
pub use memtrack_model::optrace::*;
pub use read::{Mode, ReadTrace, read};
pub use write::{save, write};
