//! Emits a pickle's instructions. They are collected in frames, as in CPython, and the memo slots are numbered. The
//! writers of values and of snapshots use this module.

use super::opcode as op;
use std::io::{self, Write};

/// The number of bytes at which a frame is closed.
const FRAME_BYTES: usize = 64 << 10;

/// An emitter of the instructions of a single pickle of protocol 4.
#[derive(Debug)]
pub(crate) struct Emitter<W> {
    out: W,
    frame: Vec<u8>,
    /// The number of memo slots in use.
    memo: u32,
}

impl<W: Write> Emitter<W> {
    /// Starts a pickle.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, 4])?;
        Ok(Self { out, frame: Vec::with_capacity(FRAME_BYTES + 1024), memo: 0 })
    }

    /// Ends the pickle, flushes the writer and returns it.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.frame.push(op::STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the start of an instruction, which [`Self::emit`] completes.
    #[inline]
    pub(crate) fn begin(&mut self, bytes: &[u8]) {
        self.frame.extend_from_slice(bytes);
    }

    /// Writes an instruction or the rest of one.
    #[inline]
    pub(crate) fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() >= FRAME_BYTES { self.close_frame() } else { Ok(()) }
    }

    /// Writes the frame. As in Python, frames of fewer than four bytes have no header.
    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= 4 {
            self.out.write_all(&[op::FRAME])?;
            self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        }
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    /// Writes an integer in as few bytes as possible.
    #[inline]
    pub(crate) fn write_int(&mut self, number: i64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            return self.emit(&[op::BININT1, byte]);
        }
        if let Ok(short) = u16::try_from(number) {
            let [low, high] = short.to_le_bytes();
            return self.emit(&[op::BININT2, low, high]);
        }
        if let Ok(word) = i32::try_from(number) {
            self.begin(&[op::BININT]);
            return self.emit(&word.to_le_bytes());
        }
        let significant = |count: &usize| {
            let shift = 64 - 8 * *count as u32;
            number << shift >> shift == number
        };
        let count = (5..8).find(significant).unwrap_or(8);
        self.begin(&[op::LONG1, count as u8]);
        self.emit(&number.to_le_bytes()[..count])
    }

    /// Writes a float.
    pub(crate) fn write_float(&mut self, number: f64) -> io::Result<()> {
        self.begin(&[op::BINFLOAT]);
        self.emit(&number.to_be_bytes())
    }

    /// Writes a string and returns its memo slot.
    pub(crate) fn write_string(&mut self, text: &[u8]) -> io::Result<u32> {
        if let Ok(short) = u8::try_from(text.len()) {
            self.begin(&[op::SHORT_BINUNICODE, short]);
        } else if let Ok(word) = u32::try_from(text.len()) {
            self.begin(&[op::BINUNICODE]);
            self.begin(&word.to_le_bytes());
        } else {
            self.begin(&[op::BINUNICODE8]);
            self.begin(&(text.len() as u64).to_le_bytes());
        }
        self.begin(text);
        self.memoize()
    }

    /// Assigns the next memo slot to the value that was just written. Returns the slot's number, which is below
    /// `u32::MAX`.
    pub(crate) fn memoize(&mut self) -> io::Result<u32> {
        let slot = self.memo;
        let full = || io::Error::other("more than 4 G values in one pickle");
        self.memo = slot.checked_add(1).filter(|&next| next != u32::MAX).ok_or_else(full)?;
        self.emit(&[op::MEMOIZE])?;
        Ok(slot)
    }

    /// Writes a reference to a value in the memo.
    #[inline]
    pub(crate) fn write_reference(&mut self, slot: u32) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(slot) {
            return self.emit(&[op::BINGET, byte]);
        }
        self.begin(&[op::LONG_BINGET]);
        self.emit(&slot.to_le_bytes())
    }
}
