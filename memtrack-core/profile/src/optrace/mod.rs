//! Operator traces as files: JSON Lines of version 1 (docs/OPTRACE.md), plain or compressed.

mod begins;
mod error;
mod line;
mod read;
mod resolve;
mod write;

pub use begins::begins_like_trace;
pub use error::TraceError;
pub use read::{Mode, ReadTrace, looks_like, read};
pub use write::{save, write};
