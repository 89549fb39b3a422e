//! The table of events: what happened to which memory, in the order of the recording. Columns are filled one at a time, a
//! group of rows at a time.

use crate::allocations::Allocations;
use crate::table::{Cells, Column, GROUP, Kind, Table, TableWriter, Values};
use memtrack_model::event::{Action, ScopeId, ThreadId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::Key;
use parquet::data_type::ByteArray;
use std::io::{self, Write};
use std::ops::Range;

/// What happened, an event a row.
pub static EVENTS: Table = Table {
    name: "events",
    columns: &[
        Column::new("event", Kind::Long).delta(),
        Column::new("device", Kind::Int),
        Column::new("time_us", Kind::Long).nullable().delta(),
        Column::new("action", Kind::Text),
        Column::new("alloc_event", Kind::Long).nullable().delta(),
        Column::new("address", Kind::Long).nullable(),
        Column::new("size_bytes", Kind::Long),
        Column::new("blocks", Kind::Double),
        Column::new("free_bytes", Kind::Long).nullable(),
        Column::new("stream", Kind::Long),
        Column::new("stack", Kind::Int),
        Column::new("module", Kind::Text).nullable(),
        Column::new("phase", Kind::Text).nullable(),
        Column::new("operator", Kind::Text).nullable(),
        Column::new("category", Kind::Text).nullable(),
        Column::new("thread", Kind::Text).nullable(),
        Column::new("thread_id", Kind::Long).nullable(),
    ],
};

/// The texts of a scope.
struct Scoped {
    module: Option<ByteArray>,
    phase: Option<ByteArray>,
    operator: Option<ByteArray>,
}

/// A snapshot whose events are written.
struct Events<'a> {
    snapshot: &'a Snapshot,
    allocations: Allocations,
    /// By id; one more for ids that the snapshot does not have.
    scopes: Vec<Scoped>,
    threads: Vec<Option<ByteArray>>,
    categories: Vec<ByteArray>,
    actions: Vec<ByteArray>,
}

/// Writes the events of a snapshot.
pub(crate) fn write<W: Write + Send>(
    snapshot: &Snapshot,
    output: W,
    facts: &[(&str, String)],
) -> io::Result<()> {
    let mut writer = TableWriter::new(output, &EVENTS, facts)?;
    let mut events = Events::of(snapshot);
    let mut from = 0;
    while from < snapshot.events.len() {
        let to = snapshot.events.len().min(from + GROUP);
        writer.group(events.columns(from..to))?;
        from = to;
    }
    writer.finish()
}

impl<'a> Events<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| ByteArray::from(text));
        let scopes = (0..=snapshot.scopes.rows.len()).map(|id| {
            let place = snapshot.scopes.place(ScopeId(id as u32));
            Scoped {
                module: text(&place.module_path()),
                phase: place.phase.map(|phase| ByteArray::from(phase.name())),
                operator: place.operator.and_then(text),
            }
        });
        let categories = snapshot.categories.get().map_or(&[][..], |categories| &categories.names);
        Self {
            snapshot,
            allocations: Allocations::default(),
            scopes: scopes.collect(),
            threads: snapshot.threads.iter().map(|thread| text(&thread.name)).collect(),
            categories: categories.iter().map(|name| ByteArray::from(name.as_str())).collect(),
            actions: Action::ALL.iter().map(|action| ByteArray::from(action.name())).collect(),
        }
    }

    fn scoped(&self, scope: ScopeId) -> &Scoped {
        &self.scopes[scope.index().min(self.scopes.len() - 1)]
    }

    /// The events of some rows, in the order of [`EVENTS`].
    fn columns(&mut self, rows: Range<usize>) -> Vec<Cells> {
        let allocated = self.allocations.of_next(self.snapshot, rows.clone());
        let snapshot = self.snapshot;
        let table = &snapshot.events;
        let ordinals = snapshot.ordinals();
        let scopes = &table.scope[rows.clone()];
        let scoped = |of: fn(&Scoped) -> &Option<ByteArray>| match scopes.iter().all(|scope| scope.is_none())
        {
            true => Cells::none(Kind::Text, rows.len()),
            false => Cells::texts(scopes.iter().map(|&scope| of(self.scoped(scope)).clone())),
        };
        let threads = &table.thread[rows.clone()];
        let known = |thread: ThreadId| snapshot.threads.get(thread.index()).filter(|_| !thread.is_none());
        let is_oom = |row: usize| table.action[row] == Action::Oom;
        vec![
            Cells::all(Values::Long(rows.clone().map(|row| row as i64).collect())),
            Cells::all(Values::Int(
                table.device[rows.clone()].iter().map(|&device| ordinals.of(device).into()).collect(),
            )),
            Cells::longs(rows.clone().map(|row| time_us(snapshot, row))),
            Cells::all(Values::Text(
                table.action[rows.clone()]
                    .iter()
                    .map(|&action| self.actions[action as usize].clone())
                    .collect(),
            )),
            Cells::longs(allocated.into_iter()),
            // The bits of an address; those above 2^63 are negative, as in PyTorch's own files.
            Cells::longs(rows.clone().map(|row| (!is_oom(row)).then_some(table.address[row] as i64))),
            Cells::all(Values::Long(
                table.size_bytes[rows.clone()]
                    .iter()
                    .map(|&bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
                    .collect(),
            )),
            Cells::all(Values::Double(rows.clone().map(|row| snapshot.weighed_event(row).blocks).collect())),
            Cells::longs(rows.clone().map(|row| {
                is_oom(row).then(|| i64::try_from(snapshot.oom_free_bytes(row)).unwrap_or(i64::MAX))
            })),
            Cells::all(Values::Long(
                table.stream[rows.clone()].iter().map(|stream| stream.0 as i64).collect(),
            )),
            Cells::all(Values::Int(table.stack[rows.clone()].iter().map(|stack| stack.0 as i32).collect())),
            scoped(|scoped| &scoped.module),
            scoped(|scoped| &scoped.phase),
            scoped(|scoped| &scoped.operator),
            match snapshot.categories.get() {
                None => Cells::none(Kind::Text, rows.len()),
                Some(categories) => Cells::texts(rows.clone().map(|row| {
                    let number = usize::from(*categories.of_event.get(row)?);
                    self.categories.get(number.checked_sub(1)?).cloned()
                })),
            },
            Cells::texts(
                threads
                    .iter()
                    .map(|&thread| known(thread).and_then(|_| self.threads[thread.index()].clone())),
            ),
            Cells::longs(threads.iter().map(|&thread| known(thread).map(|thread| thread.os_id as i64))),
        ]
    }
}

/// Microseconds from what the snapshot's seconds count from; none for an event of a PyTorch file without a time.
fn time_us(snapshot: &Snapshot, row: usize) -> Option<i64> {
    if let Some(pytorch) = snapshot.pytorch.as_deref()
        && !pytorch.events.has(row, Key::TimeUs)
    {
        return None;
    }
    Some((snapshot.clock.seconds_since_start(snapshot.events.ticks[row]) * 1e6).round() as i64)
}
