//! Reads and writes recordings, whose chunks may contain a snapshot from PyTorch (`embedded`).

use crate::embedded;
use memtrack_file::part;
use memtrack_file::{Content, ReadReport, RecordingError};
use memtrack_model::Snapshot;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// Reads a recording up to its last complete chunk. The events are sorted by ticks, and events with equal ticks stay in
/// the order in which they were written.
///
/// # Errors
/// Fails if `input` cannot be read, is empty, is not a recording, or is in a newer version of the format. A file that
/// is cut off or damaged after its header is not an error; the report says what is missing.
pub fn load_from(input: impl Read) -> Result<(Snapshot, ReadReport), RecordingError> {
    into_snapshot(memtrack_file::read(input)?)
}

/// Reads a recording from a file that is compressed as a whole. `packed_bytes` returns the number of compressed bytes
/// that have been read so far.
///
/// # Errors
/// Fails in the same cases as [`load_from`].
pub(crate) fn load_packed(
    input: impl Read,
    packed_bytes: impl Fn() -> u64,
) -> Result<(Snapshot, ReadReport), RecordingError> {
    into_snapshot(memtrack_file::read_packed(input, packed_bytes)?)
}

fn into_snapshot((content, report): (Content, ReadReport)) -> Result<(Snapshot, ReadReport), RecordingError> {
    match content {
        Content::Recording(snapshot) => Ok((*snapshot, report)),
        Content::Pytorch(pickle) => Ok((embedded::restore(&pickle, &report)?, report)),
    }
}

/// Reads the recording at `path`, along with its other parts in the same folder.
pub(crate) fn load(path: &Path) -> Result<(Snapshot, ReadReport), RecordingError> {
    load_from(BufReader::with_capacity(64 << 10, part::open(path)?))
}

/// Writes a snapshot as a recording and returns the output.
pub(crate) fn save_to<W: Write>(snapshot: &Snapshot, output: W) -> io::Result<W> {
    if snapshot.pytorch.is_some() {
        return embedded::save(snapshot, output);
    }
    memtrack_file::write(snapshot, output)
}
