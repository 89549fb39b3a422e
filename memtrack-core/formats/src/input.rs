//! Reads bytes from a file or a pipe, compressed or not. Compression is recognised by the first bytes, never by the
//! file's name. No more than a small window of the bytes is buffered.

use flate2::bufread::MultiGzDecoder;
use memtrack_file::{Compression, ProcessChoice};
use ruzstd::decoding::StreamingDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

/// Options for loading a snapshot, i.e. limits and progress reports.
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// The maximum uncompressed size of the input. Larger inputs are refused.
    pub max_input: u64,
    /// A function that is called from time to time with the number of bytes that have been read from the file so far,
    /// before decompression.
    pub progress: Option<&'a mut dyn FnMut(u64)>,
    /// Whether to read the events. Without them, a PyTorch snapshot has the same number of traces, but all of them are
    /// empty, so only its segments can be examined. In return, loading takes half the time and a fraction of the
    /// memory. A recording is always read with its events.
    pub events: bool,
    /// The processes to read from the recording of a run (`memtrack run`). Other files have no processes.
    pub process: ProcessChoice,
}

impl Default for LoadOptions<'_> {
    /// Returns the default options: at most 64 GiB, no progress reports, with events, and of a run, only the process
    /// that is the program.
    fn default() -> Self {
        Self { max_input: 64 << 30, progress: None, events: true, process: ProcessChoice::Program }
    }
}

impl<'a> LoadOptions<'a> {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum uncompressed size of the input.
    #[must_use]
    pub fn max_input(mut self, bytes: u64) -> Self {
        self.max_input = bytes;
        self
    }

    /// Sets a function to be called from time to time with the number of bytes read so far.
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

    /// Sets which processes of a run to read.
    #[must_use]
    pub fn process(mut self, process: ProcessChoice) -> Self {
        self.process = process;
        self
    }
}

/// The state of the file underlying a reader.
#[derive(Debug, Default)]
pub struct InputState {
    /// The number of bytes read so far.
    pub(crate) bytes: Cell<u64>,
    /// Whether the end of the file has been reached.
    ended: Cell<bool>,
    /// Whether reading the file failed.
    failed: Cell<bool>,
}

impl InputState {
    /// Returns the number of bytes read so far, before decompression.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

/// A reader that counts the bytes that pass through it.
pub struct CountingReader<'a, R> {
    /// The reader of the file.
    pub inner: R,
    /// The state to update.
    pub count: &'a InputState,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).inspect_err(|_| self.count.failed.set(true))?;
        self.count.bytes.set(self.count.bytes.get() + read as u64);
        self.count.ended.set(read == 0 && !buffer.is_empty());
        self.count.failed.set(false);
        Ok(read)
    }
}

/// Returns a reader that decompresses the data if its first bytes show that it is compressed, along with the
/// compression.
pub fn unpack<'a>(
    reader: CountingReader<'a, impl Read + 'a>,
) -> io::Result<(Box<dyn BufRead + 'a>, Compression)> {
    let count = reader.count;
    let (head, reader) = peek(BufReader::with_capacity(32 << 10, reader))?;
    Ok(match head[..] {
        [0x1f, 0x8b, ..] => {
            let inner = MultiGzDecoder::new(reader);
            (Box::new(BufReader::new(Decompressor { inner, packed_by: "gzip", count })), Compression::Gzip)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let inner = Zstd { state: Some(ZstdState::BetweenFrames(reader)) };
            (
                Box::new(BufReader::new(Decompressor { inner, packed_by: "Zstandard", count })),
                Compression::Zstd,
            )
        }
        _ => (Box::new(reader), Compression::None),
    })
}

/// Decompresses the start of a file, given its first bytes `stored`, and returns at most `limit` bytes, by which the
/// kind of file can be identified. Returns fewer bytes if `stored` does not contain enough data.
pub fn unpacked_head(stored: &[u8], limit: usize) -> Vec<u8> {
    let count = InputState::default();
    let mut head = Vec::new();
    if let Ok((reader, _)) = unpack(CountingReader { inner: stored, count: &count }) {
        // Ignore errors: they occur where `stored` ends, and the data before that has been read.
        let _ = reader.take(limit as u64).read_to_end(&mut head);
    }
    head
}

/// A decompressing reader whose error messages are meant for the user.
struct Decompressor<'a, R> {
    inner: R,
    packed_by: &'static str,
    count: &'a InputState,
}

impl<R: Read> Read for Decompressor<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted || self.count.failed.get() {
                return error;
            }
            let (packed_by, bytes) = (self.packed_by, self.count.bytes.get());
            // The decompressors do not distinguish between truncation and damage.
            let message = if self.count.ended.get() {
                format!("the {packed_by} data ends too early, at byte {bytes} of the file: it is cut, copy it again")
            } else {
                format!("the {packed_by} data is damaged before byte {bytes} of the file; copy it again")
            };
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

/// Returns up to eight bytes from the start of a reader, and a reader that returns them again.
pub(crate) fn peek<R: BufRead>(mut reader: R) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut head = Vec::with_capacity(8);
    reader.by_ref().take(8).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(reader)))
}

/// A reader of consecutive Zstandard frames.
struct Zstd<R: BufRead> {
    state: Option<ZstdState<R>>,
}

enum ZstdState<R: BufRead> {
    BetweenFrames(R),
    InFrame(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.state.take() {
                None => return Ok(0),
                Some(ZstdState::BetweenFrames(mut reader)) => {
                    if reader.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(reader)
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
                    self.state = Some(ZstdState::InFrame(Box::new(decoder)));
                }
                Some(ZstdState::InFrame(mut decoder)) => {
                    let read = decoder.read(buffer)?;
                    if read > 0 {
                        self.state = Some(ZstdState::InFrame(decoder));
                        return Ok(read);
                    }
                    self.state = Some(ZstdState::BetweenFrames(decoder.into_inner()));
                }
            }
        }
    }
}
