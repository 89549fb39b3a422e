//! Writes snapshots: one traversal of the tables ([`walk`]) serves both encodings ([`Sink`]). Keys are written in the
//! order of the records' shapes, so that a snapshot from a file is written unchanged.

mod json;
mod measure;
mod pickle;
mod walk;

use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::{Snapshot, StringId};
use std::io::{self, Write};

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    List,
    Dict,
    Tuple,
    Set,
    FrozenSet,
}

/// The identity of a value that may be written once and referred to afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SharedId {
    Stack(u32),
    Frame(u32),
    Pool(u64, u64),
    /// A value, by its address in memory.
    Value(usize),
}

/// A receiver of a snapshot's values, with one call per value, in order. A container is begun with its number of items;
/// each item (in a dictionary, a key and a value) is between [`Sink::item`] and [`Sink::item_end`].
trait Sink {
    fn none(&mut self) -> io::Result<()>;
    fn bool(&mut self, truth: bool) -> io::Result<()>;
    fn int(&mut self, number: i64) -> io::Result<()>;
    /// Writes an integer of more than 64 bits, given as little-endian two's complement bytes.
    fn big(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn float(&mut self, number: f64) -> io::Result<()>;
    fn string(&mut self, id: StringId, text: &[u8]) -> io::Result<()>;
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Writes a reference to a value that was written before; returns `false` when the value must be written.
    fn recall(&mut self, shared: SharedId) -> io::Result<bool>;
    fn begin(&mut self, container: Container, items: usize, shared: Option<SharedId>) -> io::Result<()>;
    fn item(&mut self) -> io::Result<()>;
    /// Separates the key and the value of an item.
    fn colon(&mut self) -> io::Result<()>;
    fn item_end(&mut self) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// The encoding of a snapshot in PyTorch's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// A pickle, like PyTorch's own.
    Pickle,
    /// The same values as JSON.
    Json,
}

/// Writes a snapshot in PyTorch's form to `output` and returns `output`.
/// [`SnapshotFiles::as_pytorch`](crate::SnapshotFiles::as_pytorch) converts a recording to that form.
///
/// # Errors
/// Fails when `output` cannot be written, or the snapshot contains a value that the encoding cannot represent (bytes
/// in JSON; shared values that would be extremely long without sharing).
pub fn write<W: Write>(snapshot: &PytorchSnapshot, output: W, encoding: Encoding) -> io::Result<W> {
    write_tables(snapshot, output, encoding)
}

/// Writes the tables of a snapshot that is in PyTorch's form.
pub(crate) fn write_tables<W: Write>(snapshot: &Snapshot, output: W, encoding: Encoding) -> io::Result<W> {
    match encoding {
        Encoding::Pickle => {
            let mut sink = pickle::PickleSink::new(output)?;
            walk::walk(snapshot, &mut sink)?;
            sink.finish()
        }
        Encoding::Json => {
            let mut measure = measure::MeasureSink::default();
            walk::walk(snapshot, &mut measure)?;
            measure.finish()?;
            let mut sink = json::JsonSink::new(output);
            walk::walk(snapshot, &mut sink)?;
            sink.finish()
        }
    }
}
