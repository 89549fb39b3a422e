//! An output buffer. Reports append to it, and it is written out in large pieces. Writing a line allocates no memory.

use super::number::push_size;
use std::io::{self, Write};

/// The number of bytes at which the buffer is flushed.
const FLUSH_BYTES: usize = 64 << 10;

/// A buffer in front of a writer.
pub(super) struct Sink<'w, W: Write> {
    /// Text that has been appended but not yet flushed.
    pub(super) text: Vec<u8>,
    writer: &'w mut W,
}

impl<'w, W: Write> Sink<'w, W> {
    /// Creates an empty buffer.
    pub(super) fn new(writer: &'w mut W) -> Self {
        Self { text: Vec::with_capacity(FLUSH_BYTES + 4096), writer }
    }

    /// Appends text.
    pub(super) fn push_str(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Appends a number.
    pub(super) fn push_decimal(&mut self, number: i128) {
        push_decimal(&mut self.text, number);
    }

    /// Appends a size as PyTorch prints it.
    pub(super) fn push_size(&mut self, bytes: i128) {
        push_size(&mut self.text, bytes);
    }

    /// Flushes the buffer if it is full. Called between lines.
    pub(super) fn flush_if_full(&mut self) -> io::Result<()> {
        if self.text.len() >= FLUSH_BYTES {
            self.writer.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    /// Writes the rest of the buffer.
    pub(super) fn finish(self) -> io::Result<()> {
        self.writer.write_all(&self.text)
    }
}

/// Appends the digits of a number.
pub(super) fn push_decimal(out: &mut Vec<u8>, number: i128) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
