//! The result of reading a file, apart from the snapshot: the reason why a file could not be read at all
//! ([`RecordingError`]), or which part of the file was read ([`ReadReport`]).

use memtrack_model::snapshot::{ProcessRow, Unrecorded};
use std::{fmt, io};

/// The reason why a recording could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// The file is not a recording.
    Foreign,
    /// The file is a recording that ends inside its first 16 bytes, or whose header is damaged.
    Header,
    /// The file is of a version that this build does not know.
    Version(u32),
    /// The file contains a snapshot from PyTorch and is cut off or damaged; such a file cannot be read in part.
    CutSnapshot {
        /// The number of bytes at the end that are lost.
        lost_bytes: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// The run has no such process.
    NoProcess {
        /// The requested process id or name.
        wanted: String,
        /// The processes of the run: process id and command line.
        processes: Vec<(u32, String)>,
    },
}

/// The maximum number of processes that an error names.
const MAX_NAMED: usize = 8;

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the file is empty"),
            Self::Foreign => f.write_str("not a memtrack recording (it does not begin with MEMTRACK)"),
            Self::Header => {
                f.write_str("a memtrack recording whose header is cut or damaged: nothing can be read")
            }
            Self::Version(version) => write!(
                f,
                "a memtrack recording of format version {version}, but this build reads up to {}: use a newer memtrack",
                super::FORMAT_VERSION
            ),
            Self::CutSnapshot { lost_bytes, file_bytes } => write!(
                f,
                "a PyTorch snapshot in a recording that is cut or damaged (the last {lost_bytes} of {file_bytes} bytes \
                 are lost), and such a one cannot be read in part: convert the snapshot again"
            ),
            Self::NoProcess { wanted, processes } => {
                write!(f, "no process with the id or name {wanted}; the run has ")?;
                for (at, (pid, command)) in processes.iter().take(MAX_NAMED).enumerate() {
                    let command: String = command.chars().take(60).collect();
                    write!(f, "{}{pid} ({command})", if at == 0 { "" } else { ", " })?;
                }
                match processes.len().saturating_sub(MAX_NAMED) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for RecordingError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The part of a recording that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadReport {
    /// Whether the recording was finished, and read to its end.
    pub complete: bool,
    /// The size of the file.
    pub file_bytes: u64,
    /// The number of bytes at the end that could not be used.
    pub lost_bytes: u64,
    /// The number of complete chunks that were read.
    pub chunks: u64,
    /// The number of chunks of kinds that this build does not know.
    pub unknown_chunks: u64,
    /// Whether the lost bytes begin with a damaged chunk rather than with a truncated one.
    pub damaged: bool,
    /// The number of ids of stacks, scopes or threads that are in no table; they were replaced by "none".
    pub unknown_ids: u64,
    /// The number of parts of the recording that were read to their end and continue in another file.
    pub parts: u64,
    /// Whether the file is an older part of a recording whose next part was not read.
    pub continues_elsewhere: bool,
    /// Whether the live blocks at the end were computed from the events, because the recorder could not write them.
    pub replayed: bool,
    /// The processes of a run, by number; empty for the recording of one process.
    pub processes: Vec<ProcessRow>,
    /// The numbers of the processes that the snapshot contains; empty for the recording of one process.
    pub chosen: Vec<u32>,
    /// Whether the recording of a run was finished, and read to its end. [`Self::complete`] refers to the chosen
    /// processes.
    pub run_complete: bool,
    /// The counts of the processes of a run that are not recorded.
    pub unrecorded: Unrecorded,
    /// Whether events of the chosen processes may be missing without being counted.
    pub has_gaps: bool,
    /// The numbers of the chosen processes that have no data left, because the data was in parts that were removed or cut
    /// off.
    pub removed: Vec<u32>,
}

impl ReadReport {
    /// Returns the process of a run that the snapshot contains; `None` for the recording of one process, and if several were
    /// chosen.
    pub fn chosen_process(&self) -> Option<&ProcessRow> {
        let [number] = self.chosen[..] else { return None };
        self.processes.iter().find(|row| row.number == number)
    }

    /// Returns one line for the user that describes the missing data, without the file's name; `None` if nothing is
    /// missing.
    pub fn warning(&self) -> Option<String> {
        let lost = self.lost_bytes;
        let is_run = !self.processes.is_empty();
        let is_complete = if is_run { self.run_complete } else { self.complete };
        let mut text = match (is_complete, self.damaged, lost) {
            (true, _, _) => String::new(),
            (false, _, _) if self.continues_elsewhere => {
                "a part of a recording that goes on in another file (open the one without `.part-` in its name)"
                    .into()
            }
            (false, true, _) => format!("damaged: the last {lost} of {} bytes are lost", self.file_bytes),
            (false, false, 0) if is_run => {
                "the run was not ended (a process still runs, or the collector was killed), or the file is cut".into()
            }
            (false, false, 0) => "the recording was not ended (the program was killed, called exec or _exit, or still runs)".into(),
            (false, false, _) => format!("cut: the last {lost} of {} bytes are lost", self.file_bytes),
        };
        if !is_complete {
            text.push_str("; what was written before is shown");
        }
        if self.has_gaps {
            let separator = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!("{separator}events may be missing, because no memory was ready for them"));
        }
        if !self.removed.is_empty() {
            let separator = if text.is_empty() { "" } else { "; " };
            let processes = if self.removed.len() == 1 { "a process" } else { "some processes" };
            text.push_str(&format!(
                "{separator}what {processes} recorded is in parts that were removed (--max-bytes) or lost"
            ));
        }
        if self.unknown_ids > 0 {
            let separator = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!(
                "{separator}{} references to unknown stacks, scopes or threads",
                self.unknown_ids
            ));
        }
        (!text.is_empty()).then_some(text)
    }
}
