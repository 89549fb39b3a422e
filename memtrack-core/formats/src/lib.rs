//! Reads, writes and converts files that hold PyTorch's snapshots and memtrack's recordings ([`SnapshotFiles`]).
//! Python's pickle format is in [`pickle`].
//!
//! Modules:
//!
//! - `files` opens and writes all kinds of files, using the table of formats in `registry`. `input` and `output` read
//!   and write bytes, compressed or not.
//! - `pickle` contains the encoding of pickles and a writer, both of which are independent of the pickles' content.
//! - `pytorch` handles PyTorch's snapshots: `read` (the machine for pickles and JSON), `write`, and `convert`, which
//!   converts recordings. [`document`] reads other pickles with the same machine.
//! - `recording` handles recordings, which may contain a PyTorch snapshot. `error` contains the reason why a file cannot
//!   be read.
//!
//! This package is part of `memtrack-core`, which re-exports its public API. Depend on `memtrack-core` instead.

mod error;
mod files;
mod input;
mod output;
pub mod pickle;
pub mod pytorch;
mod recording;
mod registry;

pub use error::{JsonError, LoadError};
pub use files::{Format, Loaded, SnapshotFiles, open_processes};
pub use input::{CountingReader, InputState, LoadOptions, unpack, unpacked_head};
pub use memtrack_file::Compression;
pub use output::write_compressed;
pub use pytorch::read::document;
pub use recording::load_from;
pub use registry::{format_of, formats_listed, split_compression};
