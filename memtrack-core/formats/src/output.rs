//! Writes bytes, compressed or not. Zstandard output is a sequence of frames of a few megabytes each, so that
//! no buffer is larger than a frame.

use crate::registry::format_row;
use crate::{Compression, Format};
use flate2::write::GzEncoder;
use memtrack_model::{NameFrames, Snapshot};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{self, Write};

/// The number of bytes per Zstandard frame.
const ZSTD_BYTES: usize = 4 << 20;

/// Writes a snapshot in `format` with `compression`.
pub(crate) fn write_as(
    snapshot: &Snapshot,
    output: impl Write,
    format: Format,
    compression: Compression,
    names: &mut dyn NameFrames,
) -> io::Result<()> {
    write_compressed(output, compression, |output| (format_row(format).write)(snapshot, output, names))
}

/// Calls `write` with a writer that compresses the bytes and passes them on to `output`.
///
/// # Errors
/// Fails if writing to `output` fails, or if `write` fails.
pub fn write_compressed(
    mut output: impl Write,
    compression: Compression,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match compression {
        Compression::None => write(&mut output)?,
        Compression::Gzip => {
            let mut packer = GzEncoder::new(&mut output, flate2::Compression::default());
            write(&mut packer)?;
            packer.finish()?;
        }
        Compression::Zstd => {
            let mut packer = Zstd { out: &mut output, buffer: Vec::with_capacity(ZSTD_BYTES) };
            write(&mut packer)?;
            packer.pack()?;
        }
    }
    output.flush()
}

/// A writer that compresses with Zstandard.
struct Zstd<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Zstd<W> {
    fn pack(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let packed = compress_to_vec(&self.buffer[..], CompressionLevel::Fastest);
            self.out.write_all(&packed)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for Zstd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = ZSTD_BYTES - self.buffer.len();
        let taken = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == ZSTD_BYTES {
            self.pack()?;
        }
        Ok(taken)
    }

    /// Does nothing, because one frame per flush would compress badly.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
