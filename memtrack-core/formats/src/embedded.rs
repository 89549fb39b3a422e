//! Stores a snapshot from PyTorch inside a recording, as its pickle cut into chunks. The recording's own tables lack
//! columns for half of such a snapshot's data, whereas a pickle contains all of it.

use crate::pytorch::{Encoding, read, write_tables};
use memtrack_file::{ReadReport, RecordingError, RecordingWriter};
use memtrack_model::Snapshot;
use std::cell::Cell;
use std::io::{self, Write};

/// The number of pickle bytes per chunk. Each chunk has its own checksum, and the writer buffers one chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes a snapshot from PyTorch as a recording.
pub(crate) fn save<W: Write>(snapshot: &Snapshot, output: W) -> io::Result<W> {
    let mut writer = RecordingWriter::new(output, &snapshot.meta, snapshot.clock.first)?;
    writer.pytorch(&[])?;
    let chunks = ChunkWriter { writer: &mut writer, buffer: Vec::with_capacity(CHUNK_BYTES) };
    let mut chunks = write_tables(snapshot, chunks, Encoding::Pickle)?;
    chunks.write_chunk()?;
    writer.close(&[], &[], &snapshot.devices, true)
}

/// Reads the snapshot back from its pickle. If the file is incomplete, the pickle usually is as well. An incomplete
/// pickle is an error, because returning an empty snapshot would hide the fact that there was content.
pub(crate) fn restore(pickle: &[u8], report: &ReadReport) -> Result<Snapshot, RecordingError> {
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
