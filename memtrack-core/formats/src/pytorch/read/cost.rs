//! Monitors the cost of reading. Reports progress and enforces the limits on input and memory.

use crate::pickle::PickleErrorKind;
use std::cell::Cell as Counter;

/// The interval between checks in bytes of input.
const CHECK_INTERVAL_BYTES: u64 = 64 << 10;
/// The number of bytes of memory that may be used for reading any file.
const MAX_BASE_BYTES: u64 = 192 << 20;
/// The number of additional bytes of memory that may be used for each byte read from the file, before
/// decompression. Valid files take fewer than ten. Compressed files take more, in proportion to their
/// compression ratio.
const MAX_BYTES_PER_INPUT_BYTE: u64 = 64;

/// The limits on reading a file and the progress so far.
pub(crate) struct CostMonitor<'a> {
    next: u64,
    /// The maximum uncompressed size of the input.
    max_input: u64,
    /// The number of bytes read from the file so far, before decompression.
    stored: &'a Counter<u64>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> CostMonitor<'a> {
    pub(crate) fn new(max_input: u64, stored: &'a Counter<u64>, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self { next: CHECK_INTERVAL_BYTES, max_input, stored, progress }
    }

    /// Returns whether a check is due.
    #[inline]
    pub(crate) fn is_due(&self, offset: u64) -> bool {
        offset >= self.next
    }

    /// Reports progress and checks the limits.
    ///
    /// # Errors
    /// Fails if more input was read than the limits allow, or if too much memory is in use for it.
    pub(crate) fn check(&mut self, offset: u64, used_bytes: u64) -> Result<(), PickleErrorKind> {
        self.next = offset + CHECK_INTERVAL_BYTES;
        if offset > self.max_input {
            return Err(PickleErrorKind::TooLarge {
                what: "bytes of unpacked input (--max-input)",
                limit: self.max_input,
            });
        }
        let limit = MAX_BASE_BYTES.saturating_add(self.stored.get().saturating_mul(MAX_BYTES_PER_INPUT_BYTE));
        if used_bytes > limit {
            return Err(PickleErrorKind::TooLarge { what: "bytes of values for such a small file", limit });
        }
        (self.progress)(self.stored.get());
        Ok(())
    }
}
