//! A snapshot from PyTorch inside a recording: its pickle, cut into chunks. The recording's own tables have no place
//! for half of what such a snapshot says, and a pickle has all of it.

use super::chunk;
use super::{RecordingError, RecordingWriter};
use crate::snapshot::pytorch::{load_pickle, write};
use crate::snapshot::{Format, Snapshot};
use std::io::{self, Write};

/// Bytes of the pickle in one chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// Writes a snapshot from PyTorch as a recording.
pub(super) fn save<W: Write>(snapshot: &Snapshot, mut writer: RecordingWriter<W>) -> io::Result<W> {
    let chunks = Chunks { writer: &mut writer, buffer: Vec::with_capacity(CHUNK_BYTES) };
    let mut chunks = write(snapshot, chunks, Format::Pickle)?;
    chunks.hand_over()?;
    writer.close(&[], &[], &snapshot.devices, true)
}

/// Reads the snapshot back from its pickle.
pub(super) fn restore(pickle: &[u8]) -> Result<Snapshot, RecordingError> {
    let broken = |error| RecordingError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("{error}")));
    load_pickle(pickle).map_err(broken)
}

/// Cuts what is written into chunks.
struct Chunks<'a, W: Write> {
    writer: &'a mut RecordingWriter<W>,
    buffer: Vec<u8>,
}

impl<W: Write> Chunks<'_, W> {
    fn hand_over(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.writer.raw_chunk(chunk::PYTORCH, &self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for Chunks<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
