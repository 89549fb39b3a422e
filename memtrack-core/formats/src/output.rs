//! How bytes go out: packed by the name's suffix. Zstandard is written as one frame after another, each of a few
//! megabytes, so that nothing larger than that is held.

use crate::{Compression, Format, pytorch, recording};
use flate2::write::GzEncoder;
use memtrack_model::{NameFrames, Snapshot};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{self, Write};
use std::path::Path;

/// Bytes that are packed at once.
const ZSTD_BYTES: usize = 4 << 20;

/// What a file's name says it holds.
///
/// # Errors
/// A sentence that says which names there are.
pub fn format_of(path: &Path) -> Result<(Format, Compression), String> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let (name, compression) = match name.rsplit_once('.') {
        Some((name, "gz")) => (name.to_owned(), Compression::Gzip),
        Some((name, "zst" | "zstd")) => (name.to_owned(), Compression::Zstd),
        _ => (name, Compression::None),
    };
    match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("pickle" | "pkl") => Ok((Format::Pickle, compression)),
        Some("json") => Ok((Format::Json, compression)),
        Some("memtrack") => Ok((Format::Recording, compression)),
        _ => {
            Err("the name must end in .pickle, .json or .memtrack, with .gz or .zst after it to pack it"
                .into())
        }
    }
}

/// Writes a snapshot in that format, packed so.
pub(crate) fn write_as(
    snapshot: &Snapshot,
    mut output: impl Write,
    format: Format,
    compression: Compression,
    names: &mut dyn NameFrames,
) -> io::Result<()> {
    match compression {
        Compression::None => encode(snapshot, &mut output, format, names)?,
        Compression::Gzip => {
            let mut packer = GzEncoder::new(&mut output, flate2::Compression::default());
            encode(snapshot, &mut packer, format, names)?;
            packer.finish()?;
        }
        Compression::Zstd => {
            let mut packer = Zstd { out: &mut output, buffer: Vec::with_capacity(ZSTD_BYTES) };
            encode(snapshot, &mut packer, format, names)?;
            packer.pack()?;
        }
    }
    output.flush()
}

fn encode(
    snapshot: &Snapshot,
    output: &mut impl Write,
    format: Format,
    names: &mut dyn NameFrames,
) -> io::Result<()> {
    if format == Format::Recording {
        return recording::save_to(snapshot, output).map(|_| ());
    }
    if snapshot.pytorch.is_some() {
        return pytorch::write(snapshot, output, format).map(|_| ());
    }
    pytorch::write(&pytorch::convert(snapshot, names), output, format).map(|_| ())
}

/// Packs what passes.
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

    /// Does nothing: a frame for each flush would pack badly.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
