//! Writes a complete recording at once, from its tables.

use crate::RecordingWriter;
use memtrack_model::Snapshot;
use memtrack_model::event::{ScopeId, StackId, ThreadId};
use std::io::{self, Write};

/// The number of events passed to the writer at once.
const EVENTS_PER_WRITE: usize = 64 << 10;

/// Writes a recording to `output` and returns `output`. Unless [`Meta::complete`] is set, the end mark is omitted, and
/// readers will report that the recording was not finished. Data that only PyTorch's files contain is not written.
///
/// # Errors
/// Fails when `output` cannot be written.
///
/// [`Meta::complete`]: memtrack_model::snapshot::Meta::complete
pub fn write<W: Write>(snapshot: &Snapshot, output: W) -> io::Result<W> {
    let mut writer = RecordingWriter::new(output, &snapshot.meta, snapshot.clock.first)?;
    writer.modules(&snapshot.modules)?;
    writer.names(&snapshot.names)?;
    writer
        .stacks(StackId(1), (1..snapshot.stacks.len()).map(|id| snapshot.stacks.get(StackId(id as u32))))?;
    let scopes: Vec<_> = (0..).map(ScopeId).zip(snapshot.scopes.rows.iter().cloned()).skip(1).collect();
    writer.scopes(&scopes)?;
    let threads: Vec<_> = (0..).map(ThreadId).zip(snapshot.threads.iter().cloned()).skip(1).collect();
    writer.threads(&threads)?;
    let mut events = Vec::with_capacity(EVENTS_PER_WRITE.min(snapshot.events.len()));
    for row in 0..snapshot.events.len() {
        events.push(snapshot.events.get_recorded(row));
        if events.len() == EVENTS_PER_WRITE || row + 1 == snapshot.events.len() {
            writer.events(&events)?;
            events.clear();
        }
    }
    writer.clock(snapshot.clock.last)?;
    writer.end_tables(snapshot)?;
    writer.operators(&snapshot.operators)?;
    writer.marks(&snapshot.marks)?;
    writer.close(&snapshot.blocks, &snapshot.segments, &snapshot.devices, snapshot.meta.complete)
}
