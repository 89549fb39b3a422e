//! The reasons why tracker statistics cannot be used.

use memtrack_formats::pickle::PickleError;
use std::fmt;
use std::io;

/// The reason why a statistics file could not be read or written, or why its content has no summary. Displays as a
/// single line.
#[derive(Debug)]
#[non_exhaustive]
pub enum StatsError {
    /// The file cannot be opened or written.
    Io(io::Error),
    /// The file is not a pickle, or it contains more than plain data.
    Pickle(PickleError),
    /// The pickle contains something other than the statistics of a memory tracker. The text describes the content and
    /// its position.
    Shape(String),
    /// There are no records, so there is nothing to summarise. PyTorch raises `KeyError: 0`.
    NoRecords,
    /// The operator index is larger than the number of records in the series.
    MissingRecord {
        /// The first missing index.
        index: u64,
        /// The operator index stored in the file.
        op_index: u64,
    },
}

impl fmt::Display for StatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Pickle(error) => write!(f, "{error}"),
            Self::Shape(what) => {
                write!(f, "{what}; give the file that MemoryTracker.save_stats wrote")
            }
            Self::NoRecords => {
                f.write_str("no operator was recorded; run the model between start_monitor and stop")
            }
            Self::MissingRecord { index, op_index } => {
                write!(
                    f,
                    "op_index is {op_index}, but memories_allocated has no record {index}; the file is damaged"
                )
            }
        }
    }
}

impl std::error::Error for StatsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Pickle(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for StatsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<PickleError> for StatsError {
    fn from(error: PickleError) -> Self {
        Self::Pickle(error)
    }
}
