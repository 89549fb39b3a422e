//! PyTorch's snapshots: what `torch.cuda.memory._snapshot()` returns, read from pickles and JSON, kept in tables without loss
//! ([`PyTorch`]), and written again ([`write`](fn@write)); and recordings, converted to that form ([`convert`](fn@convert)).

pub mod convert;
mod counts;
mod driver_readings;
mod intern;
pub(crate) mod read;
mod samples;
mod scope_sums;
mod scopes;
mod settings;
mod write;

pub use convert::convert;
pub use intern::StringInterner;
pub(crate) use write::write_tables;
pub use write::{Encoding, write};

use memtrack_model::snapshot::pytorch::{Key, Odd, Part, PyTorch, Records, Shape, known};

/// Finds again what memtrack wrote among a snapshot's settings: scopes, samples, counts, the driver's readings. For who
/// has changed the settings of a snapshot that was read.
pub fn find_own(snapshot: &mut memtrack_model::Snapshot) {
    samples::restore(snapshot);
    scopes::restore(snapshot);
    counts::restore(snapshot);
    driver_readings::restore(snapshot);
}
