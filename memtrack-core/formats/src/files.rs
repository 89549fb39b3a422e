//! Opens and writes every kind of file that holds a snapshot: recordings, PyTorch's pickles and their JSON, compressed or
//! not. Files are recognised by their contents.

use crate::input::{Counted, Stored, peek, unpack};
use crate::output::write_as;
use crate::registry::{self, Input, format_of};
use crate::{Compression, LoadError, LoadOptions, pytorch, recording};
use memtrack_file::{ReadReport, RecordingError, ReplacingFile, part};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::{NameFrames, Snapshot};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// The kind of file that a snapshot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// memtrack's own recording.
    Recording,
    /// A pickle from PyTorch.
    Pickle,
    /// The same data as JSON.
    Json,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Recording, Self::Json, Self::Pickle];

    /// Returns the usual ending of its files' names, without the dot.
    pub fn suffix(self) -> &'static str {
        self.suffixes()[0]
    }

    /// Returns all endings of its files' names, without the dot, the usual one first.
    pub fn suffixes(self) -> &'static [&'static str] {
        registry::row(self).suffixes
    }

    /// Returns the format whose files' names end in `.suffix`, in small or large letters.
    pub fn named(suffix: &str) -> Option<Self> {
        registry::format_named(suffix)
    }
}

/// A snapshot that was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The kind of file that it was read from.
    pub format: Format,
    /// The compression of the file.
    pub compression: Compression,
    /// For a recording, whether it was complete.
    pub report: Option<ReadReport>,
    /// The fault of the compressed data after the end of a pickle: the snapshot is complete, but its checksum
    /// is missing or wrong.
    pub checksum_error: Option<String>,
}

/// Reads and writes a [`Snapshot`] as files.
///
/// ```
/// # use memtrack_formats::SnapshotFiles;
/// # use memtrack_model::Snapshot;
/// let path = std::env::temp_dir().join(format!("empty-{}.memtrack", std::process::id()));
/// Snapshot::default().save(&path)?;
/// let loaded = Snapshot::open(&path, Default::default())?;
/// assert_eq!(loaded.snapshot.events.len(), 0);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SnapshotFiles: Sized {
    /// Reads the file at `path`, whichever format it has, and the other parts of a recording next to it.
    ///
    /// # Errors
    /// Fails when it cannot be read, is too large, or is not a snapshot; and when it is named as a pickle but is JSON, because
    /// then something went wrong earlier.
    fn open(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Loaded, LoadError>;

    /// Reads a snapshot of any kind from a stream, such as standard input.
    ///
    /// # Errors
    /// Fails when it cannot be read, is too large, or is not a snapshot.
    fn open_stream(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError>;

    /// Reads the recording at `path` up to its last complete chunk; see [`load_from`](crate::load_from). The other
    /// parts of a recording that are next to it are read with it.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or is not a recording that this version knows.
    fn load(path: impl AsRef<Path>) -> Result<(Self, ReadReport), RecordingError>;

    /// Writes the snapshot as a recording to `path`, replacing an existing file. The file appears complete or not at all.
    ///
    /// # Errors
    /// Fails when the folder or the file cannot be written; what was there before is then unchanged.
    fn save(&self, path: impl AsRef<Path>) -> io::Result<()>;

    /// Writes the snapshot as a recording to `output` and gives it back. Unless [`Meta::complete`] is set, the end
    /// mark is left out and readers will report that the recording was not ended.
    ///
    /// # Errors
    /// Fails when `output` cannot be written.
    ///
    /// [`Meta::complete`]: memtrack_model::snapshot::Meta::complete
    fn save_to<W: Write>(&self, output: W) -> io::Result<W>;

    /// Writes the snapshot to `path` in the format of its suffix (`.pickle`, `.json` or `.memtrack`, then perhaps `.gz`
    /// or `.zst`), replacing an existing file. The file appears complete or not at all. `names` names the frames of a
    /// recording's stacks if the format has names.
    ///
    /// # Errors
    /// Fails when the suffix is none of these, the file cannot be written, or the format cannot represent a value.
    fn save_as(&self, path: impl AsRef<Path>, names: &mut dyn NameFrames) -> io::Result<()>;

    /// Like [`Self::save_as`], but writes to any output, without a name from which the format would follow.
    ///
    /// # Errors
    /// Fails when the output cannot be written, or the format cannot represent a value.
    fn write_as(
        &self,
        output: impl Write,
        format: Format,
        compression: Compression,
        names: &mut dyn NameFrames,
    ) -> io::Result<()>;

    /// Returns the snapshot in PyTorch's form: a recording is converted, with names from `names`; a snapshot from PyTorch
    /// is returned unchanged, as a copy ([`Self::into_pytorch`] makes none). The host heap is the device after the last accelerator.
    ///
    /// Times become microseconds; names that were not UTF-8 were converted when they were recorded. What PyTorch's form
    /// cannot hold (threads) is lost. A sampled block has the bytes that it stands for, at an address of its own, so that
    /// totals and peaks are the recording's estimates; its own size and its weight are in its `user_metadata`.
    #[must_use]
    fn as_pytorch(&self, names: &mut dyn NameFrames) -> PytorchSnapshot;

    /// Like [`Self::as_pytorch`], for a snapshot that is no longer needed.
    #[must_use]
    fn into_pytorch(self, names: &mut dyn NameFrames) -> PytorchSnapshot;
}

impl SnapshotFiles for Snapshot {
    fn open(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        let path = path.as_ref();
        let loaded = Self::open_stream(part::open(path)?, options)?;
        let named = path.extension().and_then(|suffix| Format::named(suffix.to_str()?));
        if named == Some(Format::Pickle) && loaded.format == Format::Json {
            return Err(LoadError::Misnamed);
        }
        Ok(loaded)
    }

    fn open_stream(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        let LoadOptions { max_input, progress, events } = options;
        let stored = Stored::default();
        let mut quiet = |_| {};
        let progress: &mut dyn FnMut(u64) = match progress {
            Some(progress) => progress,
            None => &mut quiet,
        };
        let (reader, compression) = unpack(Counted { inner: reader, count: &stored })?;
        let (head, mut reader) = peek(reader)?;
        if head.is_empty() {
            return Err(LoadError::Empty);
        }
        let row = registry::row_of(&head);
        let is_packed = compression != Compression::None;
        let input = Input {
            reader: &mut reader,
            max_bytes: max_input,
            stored: &stored.bytes,
            progress,
            events,
            is_packed,
        };
        let (snapshot, report) = (row.read)(input)?;
        // A pickle states its end, so the checksum behind it was not read.
        let checksum_error = match compression {
            Compression::None => None,
            _ => reader.fill_buf().err().map(|error| error.to_string()),
        };
        Ok(Loaded { snapshot, format: row.format, compression, report, checksum_error })
    }

    fn load(path: impl AsRef<Path>) -> Result<(Self, ReadReport), RecordingError> {
        recording::load(path.as_ref())
    }

    fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut file = ReplacingFile::create(path.as_ref())?;
        self.save_to(&mut file)?;
        file.commit()
    }

    fn save_to<W: Write>(&self, output: W) -> io::Result<W> {
        recording::save_to(self, output)
    }

    fn save_as(&self, path: impl AsRef<Path>, names: &mut dyn NameFrames) -> io::Result<()> {
        let path = path.as_ref();
        let (format, compression) =
            format_of(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let mut file = ReplacingFile::create(path)?;
        self.write_as(&mut file, format, compression, names)?;
        file.commit()
    }

    fn write_as(
        &self,
        output: impl Write,
        format: Format,
        compression: Compression,
        names: &mut dyn NameFrames,
    ) -> io::Result<()> {
        write_as(self, output, format, compression, names)
    }

    fn as_pytorch(&self, names: &mut dyn NameFrames) -> PytorchSnapshot {
        match self.pytorch {
            Some(_) => self.clone().into_pytorch(names),
            None => pytorch::convert(self, names),
        }
    }

    fn into_pytorch(self, names: &mut dyn NameFrames) -> PytorchSnapshot {
        PytorchSnapshot::try_from(self).unwrap_or_else(|recording| pytorch::convert(&recording, names))
    }
}
