//! Monitors the cost of reading: progress reports, and the limits on input and memory.

use crate::pickle::PickleErrorKind;
use std::cell::Cell as Counter;

/// The interval between checks, in bytes of input.
const STEP_BYTES: u64 = 64 << 10;
/// The memory that reading any file may use, in bytes.
const BASE_BYTES: u64 = 192 << 20;
/// The additional bytes of memory for each byte of the file that was read, before decompression. Valid files take less
/// than ten; compressed files more, by their compression ratio.
const BYTES_PER_BYTE: u64 = 64;

/// The limits and progress of reading a file.
pub(crate) struct CostMonitor<'a> {
    next: u64,
    /// The maximum size of the input, uncompressed.
    max_input: u64,
    /// The number of bytes of the file that were read so far, before decompression.
    stored: &'a Counter<u64>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> CostMonitor<'a> {
    pub(crate) fn new(max_input: u64, stored: &'a Counter<u64>, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self { next: STEP_BYTES, max_input, stored, progress }
    }

    /// Returns whether it is time for a check.
    #[inline]
    pub(crate) fn is_due(&self, offset: u64) -> bool {
        offset >= self.next
    }

    /// Reports the progress and checks the limits.
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
