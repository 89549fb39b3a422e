//! The cost of reading, checked on the way: progress reports, and the bounds on input and memory.

use crate::pickle::PickleErrorKind;
use std::cell::Cell as Counter;

/// The interval between two checks, in bytes of input.
const STEP_BYTES: u64 = 64 << 10;
/// The memory that every file may use, in bytes.
const BASE_BYTES: u64 = 192 << 20;
/// The further bytes of memory for each byte that was really read (before decompression). Valid files take less than
/// ten; compressed ones up to their compression factor.
const BYTES_PER_BYTE: u64 = 64;

/// The limits and progress of one load.
pub(crate) struct Watch<'a> {
    next: u64,
    /// The most bytes of input, uncompressed.
    max_input: u64,
    /// Bytes of the file that were read so far, as stored.
    stored: &'a Counter<u64>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(max_input: u64, stored: &'a Counter<u64>, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self { next: STEP_BYTES, max_input, stored, progress }
    }

    /// Returns whether it is time for a check.
    #[inline]
    pub(crate) fn is_due(&self, offset: u64) -> bool {
        offset >= self.next
    }

    /// Reports the progress; refuses an input that is too large.
    ///
    /// # Errors
    /// Fails when more input was read than the limits allow, or too much memory is used for it.
    pub(crate) fn check(&mut self, offset: u64, used_bytes: u64) -> Result<(), PickleErrorKind> {
        self.next = offset + STEP_BYTES;
        if offset > self.max_input {
            return Err(PickleErrorKind::TooLarge {
                what: "bytes of unpacked input (--max-input)",
                limit: self.max_input,
            });
        }
        let limit = BASE_BYTES.saturating_add(self.stored.get().saturating_mul(BYTES_PER_BYTE));
        if used_bytes > limit {
            return Err(PickleErrorKind::TooLarge { what: "bytes of values for such a small file", limit });
        }
        (self.progress)(self.stored.get());
        Ok(())
    }
}
