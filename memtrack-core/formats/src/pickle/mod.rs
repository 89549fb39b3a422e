//! Python's pickle format, read safely and written with plain data only. Nothing in a file is ever imported or
//! called: a pickle is only data here, and anything else is refused with its name and offset. This module is independent
//! of the tracker's files and of snapshots; their readers list the Python classes that they expect ([`Global`]) and
//! traverse the [`Document`].
//!
//! The cost of a file is bounded by its size: memory grows by a small constant times the bytes that were read, up to
//! [`Limits::memory_bytes`]; shared values stay shared; the result has no cycles and at most [`Limits::depth`] levels, so
//! that code that traverses it may recurse.
//!
//! **Why not `serde-pickle`?** It refuses objects that are shared through the memo, which every PyTorch snapshot has,
//! decodes at 40 MB/s, and can neither read nor write the `defaultdict`s of PyTorch's tracker files. Tests compare this
//! machine with CPython instead.

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
