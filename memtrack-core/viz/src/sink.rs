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
    if number < 0 {
        out.push(b'-');
    }
    let magnitude = number.unsigned_abs();
    let Ok(mut rest) = u64::try_from(magnitude) else {
        return out.extend_from_slice(magnitude.to_string().as_bytes());
    };
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_are_written() {
        for number in [0, 7, -10, u64::MAX.into(), i128::from(u64::MAX) + 1, -(1 << 90)] {
            let mut text = Vec::new();
            push_decimal(&mut text, number);
            assert_eq!(String::from_utf8(text).unwrap(), number.to_string());
        }
    }
}
