//! Reads and writes recordings. A snapshot from PyTorch is stored inside a recording as its pickle cut into chunks. The
//! recording's own tables lack columns for half of such a snapshot's data, whereas a pickle contains all of it.

use crate::pytorch::{Encoding, read, write_tables};
use memtrack_file::part;
use memtrack_file::{Content, ProcessChoice, ReadReport, RecordingError, RecordingWriter, read_processes};
use memtrack_model::Snapshot;
use std::cell::Cell;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// The number of pickle bytes per chunk. Each chunk has its own checksum, and the writer buffers one chunk.
const CHUNK_BYTES: usize = 256 << 10;

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
        Content::Pytorch(pickle) => Ok((restore_pytorch(&pickle, &report)?, report)),
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
        return save_pytorch(snapshot, output);
    }
    memtrack_file::write(snapshot, output)
}

/// Writes a snapshot from PyTorch as a recording.
fn save_pytorch<W: Write>(snapshot: &Snapshot, output: W) -> io::Result<W> {
    let mut writer = RecordingWriter::new(output, &snapshot.meta, snapshot.clock.first)?;
    writer.pytorch(&[])?;
    let chunks = ChunkWriter { writer: &mut writer, buffer: Vec::with_capacity(CHUNK_BYTES) };
    let mut chunks = write_tables(snapshot, chunks, Encoding::Pickle)?;
    chunks.write_chunk()?;
    writer.close(&[], &[], &snapshot.devices, true)
}

/// Reads the snapshot back from its pickle. If the file is incomplete, the pickle usually is as well. An incomplete
/// pickle is an error, because returning an empty snapshot would hide the fact that there was content.
fn restore_pytorch(pickle: &[u8], report: &ReadReport) -> Result<Snapshot, RecordingError> {
    let stored = Cell::new(pickle.len() as u64);
    read::read_pickle(pickle, u64::MAX, &stored, &mut |_| {}, true).map_err(|error| {
        if report.complete {
            RecordingError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("{error}")))
        } else {
            RecordingError::CutSnapshot { lost_bytes: report.lost_bytes, file_bytes: report.file_bytes }
        }
    })
}

/// A writer that passes its input on in chunks.
struct ChunkWriter<'a, W: Write> {
    writer: &'a mut RecordingWriter<W>,
    buffer: Vec<u8>,
}

impl<W: Write> ChunkWriter<'_, W> {
    fn write_chunk(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.writer.pytorch(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for ChunkWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
