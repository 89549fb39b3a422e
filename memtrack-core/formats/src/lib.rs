//! Files: PyTorch's snapshots and memtrack's recordings, read, written and converted ([`SnapshotFiles`]), and Python's
//! pickle format below them ([`pickle`]).
//!
//! The modules:
//!
//! - `files` opens and writes every kind of file, by the rows of `registry`; `input` and `output`: bytes, compressed or
//!   not.
//! - `pickle`: the safe machine and the writer, independent of what pickles contain.
//! - `pytorch`: PyTorch's snapshots: `read` (machine, fast path, folding, finish), `write`, and `convert` from
//!   recordings.
//! - `recording`, `embedded`: recordings, and a PyTorch snapshot inside one; `error`: the reason why a file cannot be read.
//!
//! This package is a part of `memtrack-core`, which re-exports the public API; depend on that.

mod embedded;
mod error;
mod files;
mod input;
mod output;
pub mod pickle;
pub mod pytorch;
mod recording;
mod registry;

pub use error::{JsonError, LoadError};
pub use files::{Format, Loaded, SnapshotFiles};
pub use input::{Counted, LoadOptions, Stored, unpack, unpacked_head};
pub use memtrack_file::Compression;
pub use output::packed;
pub use recording::load_from;
pub use registry::{format_of, formats_listed, packing};
