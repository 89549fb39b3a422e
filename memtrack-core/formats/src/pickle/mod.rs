//! Python's pickle format, read safely and written plainly. Nothing in a file is ever imported or called: a pickle is
//! data here, and what is more than data is refused with its name and its place. This room knows nothing of trackers
//! or snapshots; they say which of Python's classes they expect ([`Global`]) and walk the [`Document`].
//!
//! What a file can cost is bounded by what it is: memory grows by a small constant times the bytes that really
//! arrived, up to [`Limits::memory_bytes`]; shared values stay shared; the result has no cycles and no more than
//! [`Limits::depth`] levels, so that whoever walks it may recurse.

mod build;
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
pub(crate) mod token;
mod value;
mod writer;

pub use error::{PickleError, PickleErrorKind};
pub use global::Global;
pub use machine::{Limits, load};
pub use value::{Dict, DictId, Document, ListId, Span, TupleId, Value};
pub use writer::Writer;

#[cfg(test)]
mod tests;
