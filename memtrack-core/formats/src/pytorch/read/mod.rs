//! Reading: a machine (pickle or JSON) makes cells, folds dictionaries into tables on the way, and [`finish`] makes
//! the snapshot. Memory is bounded by the size of the file; nothing in a file is ever executed.

mod fast;
mod finish;
mod fold;
mod machine;
#[cfg(test)]
mod tests;

use crate::pickle::source::Source;
use crate::pickle::{PickleError, PickleErrorKind};
use crate::{Format, JsonError, LoadError};
use finish::whole::{Refusal, finish};
use fold::rows::Folder;
use machine::core::Machine;
use machine::json::Json;
use machine::watch::Watch;
use memtrack_model::snapshot::Snapshot;
use std::cell::Cell;
use std::io::Read;

/// Reads the pickle of a snapshot. `stored` counts the bytes of the file behind `reader`; without `events` they are
/// recognised and dropped.
pub(crate) fn pickle(
    reader: impl Read,
    max_input: u64,
    stored: &Cell<u64>,
    progress: &mut dyn FnMut(u64),
    events: bool,
) -> Result<Snapshot, LoadError> {
    let folder = Folder { skips_events: !events, ..Folder::default() };
    let mut source = Source::new(reader);
    let mut machine = Machine::new(Watch::new(max_input, stored, progress), folder);
    let failed = |(offset, kind)| LoadError::Pickle(PickleError { offset, kind });
    let root =
        machine.run(&mut source).map_err(|error| cut(error, Format::Pickle, &machine.folder, failed))?;
    let offset = source.offset();
    let Machine { heap, folder, .. } = machine;
    finish(heap, folder, root).map_err(|refusal| match refusal {
        Refusal::Kind(kind) => failed((offset, kind)),
        Refusal::Shape(error) => error,
    })
}

/// Returns the error of a machine, with the position if its input ended.
fn cut(
    error: (u64, PickleErrorKind),
    format: Format,
    folder: &Folder,
    other: impl Fn((u64, PickleErrorKind)) -> LoadError,
) -> LoadError {
    match error {
        (offset, PickleErrorKind::Truncated) => {
            LoadError::Cut { offset, format, events: folder.events.len() }
        }
        error => other(error),
    }
}

/// Reads the JSON of a snapshot, as [`pickle`] does.
pub(crate) fn json(
    reader: impl Read,
    max_input: u64,
    stored: &Cell<u64>,
    progress: &mut dyn FnMut(u64),
    events: bool,
) -> Result<Snapshot, LoadError> {
    let folder = Folder { lists_are_tuples: true, skips_events: !events, ..Folder::default() };
    let mut json = Json::new(reader, Watch::new(max_input, stored, progress), folder);
    let failed = |(offset, kind)| LoadError::Json(JsonError { offset, kind });
    let root = json.run().map_err(|error| cut(error, Format::Json, &json.folder, failed))?;
    let offset = json.offset();
    let Json { heap, folder, .. } = json;
    finish(heap, folder, root).map_err(|refusal| match refusal {
        Refusal::Kind(kind) => failed((offset, kind)),
        Refusal::Shape(error) => error,
    })
}
