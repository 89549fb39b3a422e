//! How bytes go out: packed by the name's suffix. Zstandard is written as one frame after another, each of a few
//! megabytes, so that nothing larger than that is held.

use super::{Compression, write};
use crate::replacing_file::ReplacingFile;
use crate::snapshot::{Format, Snapshot};
use crate::stack::symbols::Symbolizer;
use flate2::write::GzEncoder;
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

/// The file's name with `.tag` before what says the format: `a.pickle.gz` becomes `a.1.pickle.gz`.
#[cfg(feature = "record")]
pub(crate) fn tagged(path: &Path, tag: &str) -> std::path::PathBuf {
    let mut stem = path.to_owned();
    let mut suffixes = std::ffi::OsString::new();
    while let Some(suffix) = stem.extension().map(ToOwned::to_owned) {
        stem.set_extension("");
        let packed = ["gz", "zst", "zstd"].iter().any(|known| suffix.eq_ignore_ascii_case(known));
        let after = std::mem::replace(&mut suffixes, ".".into());
        suffixes.push(suffix);
        suffixes.push(after);
        if !packed {
            break;
        }
    }
    let mut name = stem.into_os_string();
    name.push(format!(".{tag}"));
    name.push(suffixes);
    name.into()
}

impl Snapshot {
    /// Writes the snapshot to `path` in the format of its suffix (`.pickle`, `.json` or `.memtrack`, then perhaps `.gz`
    /// or `.zst`), replacing what is there. The file appears whole or not at all. A recording's stacks are named by
    /// `symbols` where the format has names.
    ///
    /// # Errors
    /// When the suffix is none of these, the file cannot be written, or the format has no form for a value.
    pub fn save_as(&self, path: impl AsRef<Path>, symbols: &mut Symbolizer) -> io::Result<()> {
        let path = path.as_ref();
        let (format, compression) =
            format_of(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let mut file = ReplacingFile::create(path)?;
        self.write_as(&mut file, format, compression, symbols)?;
        file.commit()
    }

    /// Writes what [`Self::save_as`] saves to any output, without a name that would say the format.
    ///
    /// # Errors
    /// When the output cannot be written, or the format has no form for a value.
    pub fn write_as(
        &self,
        mut output: impl Write,
        format: Format,
        compression: Compression,
        symbols: &mut Symbolizer,
    ) -> io::Result<()> {
        match compression {
            Compression::None => self.encode(&mut output, format, symbols)?,
            Compression::Gzip => {
                let mut packer = GzEncoder::new(&mut output, flate2::Compression::default());
                self.encode(&mut packer, format, symbols)?;
                packer.finish()?;
            }
            Compression::Zstd => {
                let mut packer = Zstd { out: &mut output, buffer: Vec::with_capacity(ZSTD_BYTES) };
                self.encode(&mut packer, format, symbols)?;
                packer.pack()?;
            }
        }
        output.flush()
    }

    fn encode(&self, output: &mut impl Write, format: Format, symbols: &mut Symbolizer) -> io::Result<()> {
        if format == Format::Recording {
            return self.save_to(output).map(|_| ());
        }
        if self.pytorch.is_some() {
            return write(self, output, format).map(|_| ());
        }
        write(&self.as_pytorch(symbols), output, format).map(|_| ())
    }
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

#[cfg(all(test, feature = "record"))]
mod tests {
    use super::*;

    #[test]
    fn a_tag_stands_before_what_says_the_format() {
        for (name, expected) in [
            ("a.pickle", "a.1.pickle"),
            ("x.y/run.v2.json.gz", "x.y/run.v2.1.json.gz"),
            ("A.MEMTRACK.ZST", "A.1.MEMTRACK.ZST"),
        ] {
            assert_eq!(tagged(Path::new(name), "1"), Path::new(expected));
            assert_eq!(format_of(Path::new(name)), format_of(Path::new(expected)));
        }
    }
}
