//! Writes snapshots. A single traversal of the tables ([`walk`]) serves both encodings ([`Sink`]). Keys are written in
//! the order of the records' shapes, so that a snapshot that comes from a file is written back unchanged.

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

/// The identity of a value that may be written once and then referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SharedId {
    Stack(u32),
    Frame(u32),
    Pool(u64, u64),
    /// A value, identified by its address in memory.
    Value(usize),
}

/// A receiver of a snapshot's values in order, with one call per value. [`Sink::begin_container`] gets the number of items
/// in a container. Each item is enclosed by calls to [`Sink::begin_item`] and [`Sink::end_item`]; in a dictionary, an
/// item is a key and a value.
trait Sink {
    fn write_none(&mut self) -> io::Result<()>;
    fn write_bool(&mut self, truth: bool) -> io::Result<()>;
    fn write_int(&mut self, number: i64) -> io::Result<()>;
    /// Writes an integer of more than 64 bits that is given as little-endian two's complement bytes.
    fn write_big_int(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn write_float(&mut self, number: f64) -> io::Result<()>;
    fn write_string(&mut self, id: StringId, text: &[u8]) -> io::Result<()>;
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Writes a reference to a value that has already been written. Returns `false` if the value itself must be
    /// written.
    fn try_write_reference(&mut self, shared: SharedId) -> io::Result<bool>;
    fn begin_container(
        &mut self,
        container: Container,
        items: usize,
        shared: Option<SharedId>,
    ) -> io::Result<()>;
    fn begin_item(&mut self) -> io::Result<()>;
    /// Separates an item's key from its value.
    fn end_key(&mut self) -> io::Result<()>;
    fn end_item(&mut self) -> io::Result<()>;
    fn end_container(&mut self) -> io::Result<()>;
}

/// The encodings of a snapshot in PyTorch's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// A pickle like PyTorch's own.
    Pickle,
    /// The same values as JSON.
    Json,
}

/// Writes a snapshot in PyTorch's form to `output` and returns `output`. Use
/// [`SnapshotFiles::as_pytorch`](crate::SnapshotFiles::as_pytorch) to convert a recording to that form.
///
/// # Errors
/// Fails if `output` cannot be written, or if the snapshot contains a value that the encoding cannot represent. JSON
/// cannot represent bytes, or shared values that would be extremely long without sharing.
pub fn write<W: Write>(snapshot: &PytorchSnapshot, output: W, encoding: Encoding) -> io::Result<W> {
    write_tables(snapshot, output, encoding)
}

/// Writes the tables of a snapshot that is already in PyTorch's form.
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
