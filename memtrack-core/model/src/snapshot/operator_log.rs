//! The operators that a program reported, as written by the recorder: lines in the encoding of `.memtrack` files (see
//! docs/FILES.md in the repository). They are parsed only when a report needs the purpose of memory, so a program that
//! only records does not pay for parsing.

use std::fmt;

/// The operators that ran, with their tensors; empty if they were not recorded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OperatorLog {
    /// The pieces of the log, in no particular order. Each line contains its time.
    pub pieces: Vec<OperatorLines>,
    /// The number of lines that were not stored because the recorder's limit had been reached.
    pub left_out: u64,
}

/// Lines of an [`OperatorLog`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OperatorLines {
    /// The ticks that the times in the lines are relative to.
    pub base_ticks: u64,
    /// The lines, in the encoding of `.memtrack` files.
    pub lines: Vec<u8>,
}

impl OperatorLog {
    /// Returns whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.left_out == 0
    }
}

impl fmt::Debug for OperatorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: usize = self.pieces.iter().map(|piece| piece.lines.len()).sum();
        f.debug_struct("OperatorLog").field("bytes", &bytes).field("left_out", &self.left_out).finish()
    }
}

impl fmt::Debug for OperatorLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorLines").field("bytes", &self.lines.len()).finish_non_exhaustive()
    }
}
