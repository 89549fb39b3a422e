//! Errors that occur when reading a snapshot. Each error states what is wrong, where it is wrong, and what to do about it.

use crate::Format;
use crate::pickle::{PickleError, PickleErrorKind};
use memtrack_file::RecordingError;
use std::fmt;
use std::io;

/// The reason why a snapshot was refused or could not be read. Displays as one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// The input is empty.
    Empty,
    /// The input is not a pickle of plain data.
    Pickle(PickleError),
    /// The input is not JSON of the kind that Python writes.
    Json(JsonError),
    /// The input ends in the middle of a pickle or of JSON data.
    Cut {
        /// The byte offset of the incomplete part, counted from the start of the unpacked input.
        offset: u64,
        /// The format that was being read.
        format: Format,
        /// The number of events that were read before that point.
        events: usize,
    },
    /// The input is not a recording, or it is a recording in a newer version of the format.
    Recording(RecordingError),
    /// The file is named `.pickle` but contains JSON.
    Misnamed,
    /// The input can be read but is not a snapshot.
    Shape {
        /// The position of the value in the snapshot, written as a Python expression.
        path: String,
        /// The type that was found there.
        found: &'static str,
        /// The type that was expected.
        wanted: &'static str,
    },
}

/// The reason why JSON was refused or could not be read. Displays as one line. If reading the input failed,
/// the error's source is the I/O error.
#[derive(Debug)]
#[non_exhaustive]
pub struct JsonError {
    /// The byte offset at which reading failed, counted from the start of the unpacked input.
    pub offset: u64,
    pub(crate) kind: PickleErrorKind,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An I/O error has no position in the text.
        if !matches!(self.kind, PickleErrorKind::Io(_)) {
            write!(f, "at byte {} of the JSON: ", self.offset)?;
        }
        write!(f, "{}", self.kind)
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("the file is empty; was the snapshot written to the end?"),
            Self::Pickle(error) => write!(f, "{error}"),
            Self::Cut { offset, format, events } => {
                let what = if *format == Format::Json { "JSON" } else { "pickle" };
                write!(f, "at byte {offset}: the {what} ends too early (events before that: {events}); ")?;
                f.write_str("the file is cut, write it again")
            }
            Self::Json(error) => write!(f, "{error}"),
            Self::Recording(error) => write!(f, "{error}"),
            Self::Misnamed => {
                f.write_str("it is named as a pickle but contains JSON; rename it to .json to read it")
            }
            Self::Shape { path, found, wanted } => {
                write!(f, "this is not a memory snapshot: {path} is {found}, not {wanted}; ")?;
                f.write_str("write one with torch.cuda.memory._dump_snapshot or memtrack")
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Pickle(error) => Some(error),
            Self::Json(error) => Some(error),
            Self::Recording(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RecordingError> for LoadError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::Io(error) => Self::Io(error),
            error => Self::Recording(error),
        }
    }
}
