//! PyTorch's snapshots: what `torch.cuda.memory._snapshot()` returns, read from pickles and JSON, kept in tables without loss
//! ([`PyTorch`]), and written again ([`write`](fn@write)); and recordings, converted to that form ([`convert`](fn@convert)).

pub mod convert;
mod counts;
mod intern;
pub(crate) mod read;
mod readings;
mod samples;
mod scope_sums;
mod scopes;
mod settings;
mod write;

pub use convert::convert;
pub use intern::StringInterner;
pub use write::write;

use memtrack_model::snapshot::pytorch::{Key, Odd, Part, PyTorch, Records, Shape, known};
