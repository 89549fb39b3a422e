//! The error type returned when reading operator traces.

use std::fmt;
use std::io;

/// The reason why an operator trace cannot be read. Displays as one line, including the line number in the
/// file if it is known.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The input could not be read.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// The file does not start with the header of an operator trace.
    NoHeader,
    /// The trace has an unsupported version.
    Version(String),
    /// A line of the file is invalid. Lines are counted from 1.
    Line(u64, String),
    /// Records contain each other in a cycle.
    Cycle,
    /// The trace has no footer, or the number of records differs from the one in the footer. Returned only in
    /// [`Mode::Compat`](super::Mode::Compat).
    Cut,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("the file is empty; was the trace written to the end?"),
            Self::NoHeader => f.write_str(
                "line 1: this is not an operator trace: it does not begin with a header of \
                 memtrack-optrace; make one with the script that `memtrack export-script` prints; for a \
                 snapshot, use `memtrack categories`",
            ),
            Self::Version(version) => write!(
                f,
                "line 1: the operator trace is of version {version}, and this memtrack reads version 1; \
                 use a newer memtrack"
            ),
            Self::Line(line, what) => write!(f, "line {line}: {what}"),
            Self::Cycle => f.write_str("some records contain each other in a cycle; write the trace again"),
            Self::Cut => f.write_str(
                "the trace is cut: its footer is missing, or counts other records; without --compat the \
                 rest is analysed",
            ),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
