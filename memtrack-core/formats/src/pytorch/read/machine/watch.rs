//! What reading costs, watched on the way: progress for whoever waits, and the bounds on input and memory.

use crate::pickle::PickleErrorKind;
use std::cell::Cell as Counter;

/// How often there is a look, in bytes of input.
const STEP_BYTES: u64 = 64 << 10;
/// Memory that every file may take.
const BASE_BYTES: u64 = 192 << 20;
/// And for each byte that really came in (before it was unpacked), this many more. Sound files take less than ten;
/// packed ones up to the factor they were packed by.
const BYTES_PER_BYTE: u64 = 64;

/// Watches one load.
pub(crate) struct Watch<'a> {
    next: u64,
    /// Most bytes of input, unpacked.
    max_input: u64,
    /// Bytes of the file that were read so far, as stored.
    stored: &'a Counter<u64>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(max_input: u64, stored: &'a Counter<u64>, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self { next: STEP_BYTES, max_input, stored, progress }
    }

    /// Whether it is time for a look.
    #[inline]
    pub(crate) fn is_due(&self, offset: u64) -> bool {
        offset >= self.next
    }

    /// Tells the progress; refuses what is too large.
    ///
    /// # Errors
    /// When more than the limits came in, or too much memory is used for what came in.
    pub(crate) fn look(&mut self, offset: u64, used_bytes: u64) -> Result<(), PickleErrorKind> {
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
