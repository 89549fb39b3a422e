//! Reads Python's pickle format safely, and writes pickles of plain data only. Nothing in a file is ever imported or
//! called. A pickle is treated as pure data, and anything else is refused with its name and offset. This module knows
//! neither PyTorch's tracker files nor snapshots. The readers of such files list the Python classes that they expect
//! ([`Global`]) and traverse the [`Document`].
//!
//! The cost of reading a file is bounded by its size. Memory grows by a small constant times the number of bytes read,
//! up to [`Limits::memory_bytes`], and shared values stay shared. The result has no cycles and at most
//! [`Limits::depth`] levels, so code that traverses it may recurse.
//!
//! **Why not `serde-pickle`?** It refuses objects that are shared through the memo, which occur in every PyTorch
//! snapshot. It also decodes at only 40 MB/s, and can neither read nor write the `defaultdict`s in PyTorch's tracker
//! files. Tests compare this machine with CPython instead.

mod build;
pub(crate) mod decode;
pub(crate) mod emitter;
mod error;
mod global;
pub(crate) mod line;
mod machine;
pub(crate) mod number;
pub(crate) mod opcode;
mod operand;
mod shape;
pub(crate) mod source;
mod stack;
pub(crate) mod text;
mod value;
mod writer;

pub use error::PickleError;
pub(crate) use error::PickleErrorKind;
pub use global::Global;
pub use machine::{Limits, load};
pub use value::{Dict, DictId, Document, ListId, Span, TupleId, Value};
pub use writer::Writer;

#[cfg(test)]
mod tests;
