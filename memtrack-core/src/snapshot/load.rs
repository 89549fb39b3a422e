//! One door for every file a command may be given: recordings, PyTorch's pickles and their JSON, packed or not, told
//! apart by what they hold.

use super::Snapshot;
use super::pytorch::{self, Compression, LoadError, LoadOptions};
use super::recording::{ReadReport, part};
use std::io::Read;
use std::path::Path;

/// What kind of file a snapshot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// memtrack's own recording.
    Recording,
    /// A pickle of PyTorch's.
    Pickle,
    /// The same as JSON.
    Json,
}

/// A snapshot that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// What it was read from.
    pub format: Format,
    /// How that was packed.
    pub compression: Compression,
    /// For a recording, whether it was whole.
    pub report: Option<ReadReport>,
    /// What is wrong with the packed data behind the end of a pickle: the snapshot is whole, but the checksum that
    /// would prove it is missing or another.
    pub unproved: Option<String>,
}

impl Snapshot {
    /// Reads the file at `path`, whatever snapshot it holds; of a recording in parts also those beside it.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or is no snapshot; and when it is named a pickle and is JSON, because
    /// then something else went wrong before.
    pub fn open(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        let path = path.as_ref();
        let loaded = pytorch::load(part::opened(path)?, options)?;
        let pickle = path.extension().is_some_and(|suffix| suffix == "pickle" || suffix == "pkl");
        if pickle && loaded.format == Format::Json {
            return Err(LoadError::Misnamed);
        }
        Ok(loaded)
    }

    /// Reads a snapshot of any kind from a stream, such as standard input.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or is no snapshot.
    pub fn open_stream(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        pytorch::load(reader, options)
    }
}
