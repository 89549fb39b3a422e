//! Python's pickle format: opcodes, tokens, operands and errors, and a writer of plain data. The machine that reads
//! pickles is in `crate::pytorch::read`. It imports and calls nothing, treats a pickle as pure data, and refuses
//! anything else with its name and offset.
//!
//! **Why not `serde-pickle`?** It refuses objects that are shared through the memo, which occur in every PyTorch
//! snapshot. It also decodes at only 40 MB/s, and can neither read nor write the `defaultdict`s in PyTorch's tracker
//! files. Tests compare memtrack's machine with CPython instead.

mod error;
pub(crate) mod opcode;
pub(crate) mod operand;
pub(crate) mod source;
mod writer;

pub use error::PickleError;
pub(crate) use error::PickleErrorKind;
pub(crate) use operand::Global;
pub(crate) use writer::Emitter;
pub use writer::Writer;

#[cfg(test)]
mod tests;
