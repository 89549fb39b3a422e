//! Reading of bytes: from a file or a pipe, compressed or not, which is recognised by their first bytes, never by the
//! file's name. Nothing here buffers more than a window of them.

use flate2::bufread::MultiGzDecoder;
use memtrack_file::Compression;
use ruzstd::decoding::StreamingDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

/// The limits of a load, and its progress reports.
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// The most bytes of input, uncompressed; more is refused.
    pub max_input: u64,
    /// Called from time to time with the number of bytes read from the file so far, as stored.
    pub progress: Option<&'a mut dyn FnMut(u64)>,
    /// Whether to read the events. Without them a PyTorch snapshot has as many traces as before, all empty, so that only
    /// its segments can be examined; loading takes half of the time and a fraction of the memory. A recording always
    /// has its events.
    pub events: bool,
}

impl Default for LoadOptions<'_> {
    /// 64 GiB, no progress reports, with events.
    fn default() -> Self {
        Self { max_input: 64 << 30, progress: None, events: true }
    }
}

impl<'a> LoadOptions<'a> {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the most bytes of input, uncompressed.
    #[must_use]
    pub fn max_input(mut self, bytes: u64) -> Self {
        self.max_input = bytes;
        self
    }

    /// Sets a function that is called from time to time with the number of bytes read.
    #[must_use]
    pub fn progress(mut self, progress: &'a mut dyn FnMut(u64)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Sets whether to read the events.
    #[must_use]
    pub fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }
}

/// The state of the file behind a reader.
#[derive(Debug, Default)]
pub struct Stored {
    /// Bytes that were read so far.
    pub(crate) bytes: Cell<u64>,
    /// Whether its end was reached.
    ended: Cell<bool>,
    /// Whether reading it failed.
    failed: Cell<bool>,
}

impl Stored {
    /// Returns the bytes that were read so far, as stored.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

/// A reader that counts the bytes that pass through it.
pub struct Counted<'a, R> {
    /// The reader.
    pub inner: R,
    /// The counter.
    pub count: &'a Stored,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).inspect_err(|_| self.count.failed.set(true))?;
        self.count.bytes.set(self.count.bytes.get() + read as u64);
        self.count.ended.set(read == 0 && !buffer.is_empty());
        self.count.failed.set(false);
        Ok(read)
    }
}

/// Decompresses data whose first bytes show that it is compressed.
pub fn unpack<'a>(reader: Counted<'a, impl Read + 'a>) -> io::Result<(Box<dyn BufRead + 'a>, Compression)> {
    let count = reader.count;
    let (head, reader) = peek(BufReader::with_capacity(32 << 10, reader))?;
    Ok(match head[..] {
        [0x1f, 0x8b, ..] => {
            let inner = MultiGzDecoder::new(reader);
            (Box::new(BufReader::new(Unpacked { inner, packed_by: "gzip", count })), Compression::Gzip)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let inner = Zstd { state: Some(ZstdState::Between(reader)) };
            (Box::new(BufReader::new(Unpacked { inner, packed_by: "Zstandard", count })), Compression::Zstd)
        }
        _ => (Box::new(reader), Compression::None),
    })
}

/// Returns the first bytes of a file, unpacked, as far as `stored` contains them: at most `most`. Enough to identify
/// the kind of file.
pub fn unpacked_head(stored: &[u8], most: usize) -> Vec<u8> {
    let count = Stored::default();
    let mut head = Vec::new();
    if let Ok((reader, _)) = unpack(Counted { inner: stored, count: &count }) {
        // The data before the cut in a compressed file was read in any case.
        let _ = reader.take(most as u64).read_to_end(&mut head);
    }
    head
}

/// A decompressing reader whose errors are written for the owner of the file.
struct Unpacked<'a, R> {
    inner: R,
    packed_by: &'static str,
    count: &'a Stored,
}

impl<R: Read> Read for Unpacked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted || self.count.failed.get() {
                return error;
            }
            let (packed_by, bytes) = (self.packed_by, self.count.bytes.get());
            // The decompressors do not distinguish the two cases.
            let why = if self.count.ended.get() {
                format!("the {packed_by} data ends too early, at byte {bytes} of the file: it is cut, copy it again")
            } else {
                format!("the {packed_by} data is damaged before byte {bytes} of the file; copy it again")
            };
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

/// Returns the first bytes of a reader, up to eight, and a reader that still has them.
pub(crate) fn peek<R: BufRead>(mut reader: R) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut head = Vec::with_capacity(8);
    reader.by_ref().take(8).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(reader)))
}

/// A reader of Zstandard frames, one after another.
struct Zstd<R: BufRead> {
    state: Option<ZstdState<R>>,
}

enum ZstdState<R: BufRead> {
    Between(R),
    Inside(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.state.take() {
                None => return Ok(0),
                Some(ZstdState::Between(mut reader)) => {
                    if reader.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(reader)
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
                    self.state = Some(ZstdState::Inside(Box::new(decoder)));
                }
                Some(ZstdState::Inside(mut decoder)) => {
                    let read = decoder.read(buffer)?;
                    if read > 0 {
                        self.state = Some(ZstdState::Inside(decoder));
                        return Ok(read);
                    }
                    self.state = Some(ZstdState::Between(decoder.into_inner()));
                }
            }
        }
    }
}
