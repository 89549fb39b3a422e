//! Python's pickle format: opcodes, tokens, operands and errors, and a writer of plain data. The machine that reads
//! pickles is in [`crate::pytorch::read`]. It imports and calls nothing, treats a pickle as pure data, and refuses
//! anything else with its name and offset.
//!
//! **Why not `serde-pickle`?** It refuses objects that are shared through the memo, which occur in every PyTorch
//! snapshot. It also decodes at only 40 MB/s, and can neither read nor write the `defaultdict`s in PyTorch's tracker
//! files. Tests compare memtrack's machine with CPython instead.

pub(crate) mod decode;
pub(crate) mod emitter;
mod error;
mod global;
pub(crate) mod line;
pub(crate) mod number;
pub(crate) mod opcode;
pub(crate) mod source;
pub(crate) mod text;
mod writer;

pub use error::PickleError;
pub(crate) use error::PickleErrorKind;
pub(crate) use global::Global;
pub use writer::Writer;

#[cfg(test)]
mod tests;
