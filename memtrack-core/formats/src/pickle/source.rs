//! The bytes of a pickle through a bounded window. A length that a file claims costs nothing until the bytes arrive.

use super::error::PickleErrorKind;
use std::io::{ErrorKind, Read};
use std::ops::Range;

/// Size of the window in bytes: small enough to stay in the cache while events go past it, which for a large file is a
/// seventh of the time, and what a buffered file reads past its buffer, so that nothing is copied twice.
const WINDOW: usize = 32 * 1024;

/// A reader with a position.
#[derive(Debug)]
pub(crate) struct Source<R> {
    reader: R,
    window: Box<[u8]>,
    /// The unread part of the window is `start..end`.
    start: usize,
    end: usize,
    /// Bytes read before the window.
    before: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, window: vec![0; WINDOW].into_boxed_slice(), start: 0, end: 0, before: 0 }
    }

    /// How many bytes were taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Refills an empty window; fails at the end of the input.
    fn refill(&mut self) -> Result<(), PickleErrorKind> {
        self.before += self.end as u64;
        self.start = 0;
        self.end = 0;
        loop {
            match self.reader.read(&mut self.window) {
                Ok(0) => return Err(PickleErrorKind::Truncated),
                Ok(count) => {
                    self.end = count;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PickleErrorKind::Io(error)),
            }
        }
    }

    /// The next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, PickleErrorKind> {
        if self.start == self.end {
            self.refill()?;
        }
        let byte = self.window[self.start];
        self.start += 1;
        Ok(byte)
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleErrorKind> {
        let mut bytes = [0; N];
        if let Some(ready) = self.window[self.start..self.end].first_chunk::<N>() {
            bytes = *ready;
            self.start += N;
        } else {
            for byte in &mut bytes {
                *byte = self.byte()?;
            }
        }
        Ok(bytes)
    }

    /// The window, and where in it the bytes are that were not taken yet. Nothing can be read until
    /// [`Self::take_back`].
    #[inline]
    pub(crate) fn lend(&mut self) -> (Box<[u8]>, Range<usize>) {
        (std::mem::take(&mut self.window), self.start..self.end)
    }

    /// The window comes back, and the next `count` bytes are taken.
    #[inline]
    pub(crate) fn take_back(&mut self, window: Box<[u8]>, count: usize) {
        self.window = window;
        self.start = (self.start + count).min(self.end);
    }

    /// The next `length` bytes, if they are in the window.
    #[inline]
    pub(crate) fn ready(&mut self, length: u64) -> Option<&[u8]> {
        let length = usize::try_from(length).ok()?;
        let ready = self.window[self.start..self.end].get(..length)?;
        self.start += length;
        Some(ready)
    }

    /// Appends the next `length` bytes to `target`, which grows only as they arrive.
    pub(crate) fn append_to(&mut self, target: &mut Vec<u8>, length: u64) -> Result<(), PickleErrorKind> {
        let mut missing = length;
        while missing > 0 {
            if self.start == self.end {
                self.refill()?;
            }
            let ready = (self.end - self.start) as u64;
            let count = missing.min(ready) as usize;
            target.extend_from_slice(&self.window[self.start..self.start + count]);
            self.start += count;
            missing -= count as u64;
        }
        Ok(())
    }

    /// The bytes up to the next line feed, which is taken but not returned.
    pub(crate) fn line(&mut self, limit_bytes: u64) -> Result<Vec<u8>, PickleErrorKind> {
        let mut line = Vec::new();
        loop {
            if self.start == self.end {
                self.refill()?;
            }
            let ready = &self.window[self.start..self.end];
            let end = ready.iter().position(|&byte| byte == b'\n');
            let part = &ready[..end.unwrap_or(ready.len())];
            if (line.len() + part.len()) as u64 > limit_bytes {
                return Err(PickleErrorKind::TooLarge { what: "bytes of one line", limit: limit_bytes });
            }
            line.extend_from_slice(part);
            self.start += part.len();
            if end.is_some() {
                self.start += 1;
                return Ok(line);
            }
        }
    }
}
