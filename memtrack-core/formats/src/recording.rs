//! Reads and writes recordings, whose chunks may contain a snapshot from PyTorch (`embedded`).

use crate::embedded;
use memtrack_file::part;
use memtrack_file::{Content, ProcessChoice, ReadReport, RecordingError, read_processes};
use memtrack_model::Snapshot;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// Reads a recording up to its last complete chunk. The events are sorted by ticks, and events with equal ticks stay in
/// the order in which they were written.
///
/// # Errors
/// Fails if `input` cannot be read, is empty, is not a recording, or is in a newer version of the format. A file that
/// is cut off or damaged after its header is not an error; the report states what is missing.
pub fn load_from(input: impl Read) -> Result<(Snapshot, ReadReport), RecordingError> {
    into_snapshot(memtrack_file::read(input)?)
}

/// Reads the processes that `process` selects from a recording. `packed_bytes` returns the number of bytes that have been
/// read so far from the file if it is compressed as a whole, and `u64::MAX` otherwise.
///
/// # Errors
/// Fails in the same cases as [`load_from`], and if a run has no such process.
pub(crate) fn load_choice(
    input: impl Read,
    process: &ProcessChoice,
    packed_bytes: &dyn Fn() -> u64,
) -> Result<(Snapshot, ReadReport), RecordingError> {
    into_snapshot(memtrack_file::read_choice(input, process, packed_bytes)?)
}

/// Returns the number of the chosen process if the file at `path` is the recording of a run, so that only that process
/// is unpacked. Returns `choice` unchanged if it selects all processes, for other recordings, and for inputs that cannot
/// be read twice because they are not regular files.
///
/// # Errors
/// Fails if the file cannot be read, or if the run has no such process.
pub(crate) fn find_process(path: &Path, choice: ProcessChoice) -> Result<ProcessChoice, RecordingError> {
    if choice == ProcessChoice::All || !path.metadata()?.is_file() {
        return Ok(choice);
    }
    let rows = read_processes(BufReader::with_capacity(64 << 10, part::open(path)?))?;
    if rows.is_empty() {
        return Ok(choice);
    }
    Ok(choice.choose(&rows)?.first().map_or(choice, |&number| ProcessChoice::Number(number)))
}

fn into_snapshot((content, report): (Content, ReadReport)) -> Result<(Snapshot, ReadReport), RecordingError> {
    match content {
        Content::Recording(snapshot) => Ok((*snapshot, report)),
        Content::Pytorch(pickle) => Ok((embedded::restore(&pickle, &report)?, report)),
    }
}

/// Reads the recording at `path`, along with its other parts in the same folder.
pub(crate) fn load(path: &Path) -> Result<(Snapshot, ReadReport), RecordingError> {
    let process = find_process(path, ProcessChoice::Program)?;
    load_choice(BufReader::with_capacity(64 << 10, part::open(path)?), &process, &|| u64::MAX)
}

/// Writes a snapshot as a recording and returns the output.
pub(crate) fn save_to<W: Write>(snapshot: &Snapshot, output: W) -> io::Result<W> {
    if snapshot.pytorch.is_some() {
        return embedded::save(snapshot, output);
    }
    memtrack_file::write(snapshot, output)
}
