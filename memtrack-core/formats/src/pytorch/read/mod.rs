//! Reads snapshots, and other pickles of plain data. A machine for pickle or JSON produces cells and folds dictionaries
//! into tables as it goes, and [`finish`](fn@finish) makes the snapshot from them. Memory is bounded by the size of the
//! file, and nothing in a file is ever executed.
//!
//! The modules in the order in which to read them; each imports only modules above it:
//!
//! 1. `cell` contains the values while a file is being read, which take eight bytes each, and `heap` what does not fit
//!    into a cell, and the memo of a pickle.
//! 2. `tables` contains the tables of records. Its [`TableBuilder`] owns the heap. `fold` turns dictionaries into rows and
//!    lists of frames into stacks as soon as they are complete, and `values` converts what has no column. All three
//!    consist of methods of `TableBuilder`, which call each other.
//! 3. `runs` and `stencils` are the fast path, which recognises stacks and events by the bytes that encode them.
//! 4. `cost` contains the limits on input and memory. `machine` executes the pickle instructions of events, and
//!    `instructions` all others. `json` is the other reader, which needs neither memo nor fast path.
//! 5. `snapshot` makes the snapshot from the finished tables. `finish` walks through the root value to finish them.
//! 6. [`document`] reads pickles that are not snapshots with the same machine, which then folds nothing.

mod cell;
mod cost;
pub mod document;
mod finish;
mod fold;
mod heap;
mod instructions;
mod json;
mod machine;
mod runs;
mod snapshot;
mod stencils;
mod tables;
mod values;

#[cfg(test)]
mod tests;

use crate::pickle::source::Source;
use crate::pickle::{PickleError, PickleErrorKind};
use crate::{Format, JsonError, LoadError};
use cost::CostMonitor;
use finish::{Refusal, finish};
use json::JsonReader;
use machine::Machine;
use memtrack_model::snapshot::Snapshot;
use std::cell::Cell;
use std::io::Read;
use tables::TableBuilder;

/// Reads a snapshot's pickle. `stored` is the number of bytes that `reader` has read from the file. Without `events`,
/// events are recognised but not kept.
pub(crate) fn read_pickle(
    reader: impl Read,
    max_input: u64,
    stored: &Cell<u64>,
    progress: &mut dyn FnMut(u64),
    events: bool,
) -> Result<Snapshot, LoadError> {
    let builder = TableBuilder { skips_events: !events, ..TableBuilder::default() };
    let mut source = Source::new(reader);
    let mut machine = Machine::new(CostMonitor::new(max_input, stored, progress), builder);
    let root = machine.run(&mut source);
    finish_reading(root, machine.builder, source.offset(), Format::Pickle)
}

/// Reads a snapshot's JSON in the same way as [`read_pickle`].
pub(crate) fn read_json(
    reader: impl Read,
    max_input: u64,
    stored: &Cell<u64>,
    progress: &mut dyn FnMut(u64),
    events: bool,
) -> Result<Snapshot, LoadError> {
    let builder = TableBuilder { lists_are_tuples: true, skips_events: !events, ..TableBuilder::default() };
    let mut json = JsonReader::new(reader, CostMonitor::new(max_input, stored, progress), builder);
    let root = json.run();
    let end = json.offset();
    finish_reading(root, json.builder, end, Format::Json)
}

/// Makes the snapshot from the root value. `end` is the offset after the root value. If the input ended too early, the
/// error is [`LoadError::Cut`].
fn finish_reading(
    root: Result<cell::Cell, (u64, PickleErrorKind)>,
    builder: TableBuilder,
    end: u64,
    format: Format,
) -> Result<Snapshot, LoadError> {
    let failed = |offset, kind| match format {
        Format::Json => LoadError::Json(JsonError { offset, kind }),
        _ => LoadError::Pickle(PickleError { offset, kind }),
    };
    let root = root.map_err(|(offset, kind)| match kind {
        PickleErrorKind::Truncated => LoadError::Cut { offset, format, events: builder.events.len() },
        kind => failed(offset, kind),
    })?;
    finish(builder, root).map_err(|refusal| match refusal {
        Refusal::Kind(kind) => failed(end, kind),
        Refusal::Shape(error) => error,
    })
}
