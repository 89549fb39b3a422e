//! Opens and writes all kinds of files that contain a snapshot: recordings, PyTorch's pickles, and JSON with the same
//! content, compressed or not. Files are recognised by their contents.

use crate::input::{CountingReader, InputState, peek, unpack};
use crate::output::write_as;
use crate::registry::{self, Input, format_of};
use crate::{Compression, LoadError, LoadOptions, pytorch, recording};
use memtrack_file::{ReadReport, RecordingError, ReplacingFile, part};
use memtrack_model::snapshot::ProcessRow;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::{NameFrames, Snapshot};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// The kind of file that a snapshot came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A memtrack recording.
    Recording,
    /// A pickle from PyTorch.
    Pickle,
    /// JSON with the content of a pickle from PyTorch.
    Json,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Recording, Self::Json, Self::Pickle];

    /// Returns the format's usual file name extension, without the dot.
    pub fn suffix(self) -> &'static str {
        self.suffixes()[0]
    }

    /// Returns all file name extensions of the format, without the dot. The usual one comes first.
    pub fn suffixes(self) -> &'static [&'static str] {
        registry::format_row(self).suffixes
    }

    /// Returns the format with the file name extension `suffix`, ignoring case.
    pub fn named(suffix: &str) -> Option<Self> {
        registry::format_named(suffix)
    }
}

/// A snapshot that has been read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The file's format.
    pub format: Format,
    /// The file's compression.
    pub compression: Compression,
    /// For a recording, the reader's report, which states whether the recording was complete.
    pub report: Option<ReadReport>,
    /// An error at the end of the compressed data, after the pickle. It means that the snapshot is complete, but the
    /// checksum is missing or wrong.
    pub checksum_error: Option<String>,
}

/// Reads a [`Snapshot`] from files and writes it to them.
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
    /// Reads the file at `path` in whichever format it has, along with any other parts of a recording next to it.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is too large, or is not a snapshot. Also fails if it is named as a pickle but
    /// contains JSON, because something must have gone wrong earlier in that case.
    fn open(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Loaded, LoadError>;

    /// Reads a snapshot in any format from a stream, such as standard input.
    ///
    /// # Errors
    /// Fails if the stream cannot be read, is too large, or is not a snapshot.
    fn open_stream(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError>;

    /// Reads the recording at `path` up to its last complete chunk; see [`load_from`](crate::load_from). Any other
    /// parts of the recording that are next to it are read as well.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not a recording known to this version.
    fn load(path: impl AsRef<Path>) -> Result<(Self, ReadReport), RecordingError>;

    /// Writes the snapshot as a recording to `path`, replacing any existing file. The file appears either complete or
    /// not at all.
    ///
    /// # Errors
    /// Fails if the folder or the file cannot be written. An existing file is left unchanged in that case.
    fn save(&self, path: impl AsRef<Path>) -> io::Result<()>;

    /// Writes the snapshot as a recording to `output` and returns `output`. Unless [`Meta::complete`] is set, the end
    /// mark is omitted, so readers will report that the recording was not finished.
    ///
    /// # Errors
    /// Fails if writing to `output` fails.
    ///
    /// [`Meta::complete`]: memtrack_model::snapshot::Meta::complete
    fn save_to<W: Write>(&self, output: W) -> io::Result<W>;

    /// Writes the snapshot to `path`, replacing any existing file. The suffix determines the format: `.pickle`, `.json`
    /// or `.memtrack`, optionally followed by `.gz` or `.zst`. The file appears either complete or not at all. If the
    /// format stores the names of frames, `names` provides them for a recording's stacks.
    ///
    /// # Errors
    /// Fails if the suffix is unknown, the file cannot be written, or the format cannot represent a value.
    fn save_as(&self, path: impl AsRef<Path>, names: &mut dyn NameFrames) -> io::Result<()>;

    /// Like [`Self::save_as`], but writes to any output in the given format and compression.
    ///
    /// # Errors
    /// Fails if the output cannot be written, or the format cannot represent a value.
    fn write_as(
        &self,
        output: impl Write,
        format: Format,
        compression: Compression,
        names: &mut dyn NameFrames,
    ) -> io::Result<()>;

    /// Returns the snapshot in PyTorch's form. A recording is converted, using `names` to name its frames. A snapshot
    /// from PyTorch is returned as an unchanged copy; [`Self::into_pytorch`] avoids the copy. The host heap becomes the
    /// device after the last accelerator.
    ///
    /// Times are converted to microseconds. Names that were not UTF-8 have already been converted during recording.
    /// Threads are lost, because PyTorch's form cannot represent them. A sampled block gets the total size of the
    /// blocks that it represents, at an address that no other block has, so that totals and peaks match the recording's
    /// estimates. Its real size and its weight are in its `user_metadata`.
    #[must_use]
    fn as_pytorch(&self, names: &mut dyn NameFrames) -> PytorchSnapshot;

    /// Converts the snapshot as [`Self::as_pytorch`] does, but without a copy.
    #[must_use]
    fn into_pytorch(self, names: &mut dyn NameFrames) -> PytorchSnapshot;
}

/// Reads the recording of a run from a stream and returns all its processes, each with its own snapshot. For the
/// recording of a single process, the list has one row; for a file with a snapshot from PyTorch, it is empty.
///
/// # Errors
/// Fails if the file cannot be read, or is not a recording.
pub fn open_processes(
    reader: impl Read,
    options: LoadOptions<'_>,
) -> Result<(Vec<(ProcessRow, Snapshot)>, ReadReport), LoadError> {
    let stored = InputState::default();
    let (reader, compression) = unpack(CountingReader { inner: reader, count: &stored })?;
    let is_packed = compression != Compression::None;
    let packed_bytes = || if is_packed { stored.bytes() } else { u64::MAX };
    Ok(memtrack_file::read_each(reader.take(options.max_input), &packed_bytes)?)
}

impl SnapshotFiles for Snapshot {
    fn open(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        let path = path.as_ref();
        let process = recording::find_process(path, options.process)?;
        let loaded = Self::open_stream(part::open(path)?, LoadOptions { process, ..options })?;
        let named = path.extension().and_then(|suffix| Format::named(suffix.to_str()?));
        if named == Some(Format::Pickle) && loaded.format == Format::Json {
            return Err(LoadError::Misnamed);
        }
        Ok(loaded)
    }

    fn open_stream(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
        let LoadOptions { max_input, progress, events, process } = options;
        let stored = InputState::default();
        let mut quiet = |_| {};
        let progress: &mut dyn FnMut(u64) = match progress {
            Some(progress) => progress,
            None => &mut quiet,
        };
        let (reader, compression) = unpack(CountingReader { inner: reader, count: &stored })?;
        let (head, mut reader) = peek(reader)?;
        if head.is_empty() {
            return Err(LoadError::Empty);
        }
        let row = registry::recognize(&head);
        let is_packed = compression != Compression::None;
        let input = Input {
            reader: &mut reader,
            max_bytes: max_input,
            stored: &stored.bytes,
            progress,
            events,
            is_packed,
            process: &process,
        };
        let (snapshot, report) = (row.read)(input)?;
        // Reading stops at the end of the pickle, so the checksum that follows has not been read yet.
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
