//! PyTorch's snapshots: the results of `torch.cuda.memory._snapshot()`, read from pickles and JSON, kept in tables
//! without loss ([`PyTorch`]), and written again ([`write`](fn@write)); and recordings, converted to that form
//! ([`convert`](fn@convert)).

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

use memtrack_model::snapshot::pytorch::{ExactValue, Key, Part, PyTorch, Records, Shape, known};

/// Restores the data that memtrack wrote to a snapshot's settings: scopes, samples, counts, the driver's readings. For
/// callers that have changed the settings after reading the snapshot.
pub fn restore_settings(snapshot: &mut memtrack_model::Snapshot) {
    samples::restore(snapshot);
    scopes::restore(snapshot);
    counts::restore(snapshot);
    driver_readings::restore(snapshot);
}
