//! Files: PyTorch's snapshots and memtrack's recordings are read, written and converted ([`SnapshotFiles`]); Python's
//! pickle format is in [`pickle`].
//!
//! The modules:
//!
//! - `files` opens and writes every kind of file, with the table of formats in `registry`; `input` and `output` read and write
//!   bytes, compressed or not.
//! - `pickle`: the safe machine and the writer of pickles, independent of their content.
//! - `pytorch`: PyTorch's snapshots: `read` (machine, fast path, folding, finish), `write`, and `convert` from
//!   recordings.
//! - `recording`, `embedded`: recordings, and a PyTorch snapshot inside one; `error`: the reason why a file cannot be read.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

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
pub use input::{CountingReader, InputState, LoadOptions, unpack, unpacked_head};
pub use memtrack_file::Compression;
pub use output::write_compressed;
pub use recording::load_from;
pub use registry::{format_of, formats_listed, split_compression};
