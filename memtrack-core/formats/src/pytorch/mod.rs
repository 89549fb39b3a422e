//! PyTorch's snapshots: what `torch.cuda.memory._snapshot()` says, read from any file that says it, kept in tables
//! without loss ([`PyTorch`]), and written again. [`load`] and [`write`](fn@write) are the doors.

pub mod convert;
mod counts;
mod error;
mod input;
mod intern;
mod open;
pub(crate) mod read;
mod readings;
mod samples;
mod scope_sums;
mod scopes;
mod settings;
mod write;

pub use convert::convert;
pub use error::LoadError;
pub use input::{Compression, LoadOptions};
pub use input::{Counted, Stored, unpack};
pub use intern::StringInterner;
pub use open::load;
pub(crate) use open::load_pickle;
pub use write::write;

use memtrack_model::snapshot::pytorch::{Key, Odd, Part, PyTorch, Records, Shape, known};
