//! Handles PyTorch's snapshots, which are the results of `torch.cuda.memory._snapshot()`. They are read from pickles
//! and JSON, stored in tables without loss ([`PyTorch`]), and written back ([`write`](fn@write)). Recordings are
//! converted to the same form ([`convert`](fn@convert)).

pub mod convert;
mod counts;
mod intern;
pub(crate) mod read;
mod samples;
mod scopes;
mod settings;
mod write;

pub use convert::convert;
pub use intern::StringInterner;
pub(crate) use write::write_tables;
pub use write::{Encoding, write};

use memtrack_model::snapshot::pytorch::{ExactValue, Key, Part, PyTorch, Records, Shape, known};

/// Restores the data that memtrack wrote to a snapshot's settings: scopes, samples, counts, and driver readings.
/// Intended for callers that have changed the settings after reading the snapshot.
pub fn restore_settings(snapshot: &mut memtrack_model::Snapshot) {
    samples::restore(snapshot);
    scopes::restore(snapshot);
    counts::restore(snapshot);
    counts::restore_readings(snapshot);
}
