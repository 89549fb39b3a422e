//! The events table, in recording order. Rows are written in groups, and within a group the columns are filled one
//! after another.
//!
//! **Why does `write_with_lines` fill a buffer first?** Parquet's writer requires an output that is `Send`, and locked
//! standard output is not. The buffer is copied to the output after each group of rows.

use crate::table::{Cells, Column, Kind, ROWS_PER_GROUP, Table, TableWriter, Values};
use foldhash::{HashMap, HashMapExt};
use memtrack_model::event::{Action, DeviceId, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::Snapshot;
use parquet::data_type::ByteArray;
use std::io::{self, Write};
use std::ops::Range;

const COLUMNS: [Column; 17] = [
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
];

/// The events, one per row.
pub static EVENTS: Table = Table { name: "events", columns: &COLUMNS };

/// The events table for a file that comes without tables of stacks. It has the columns of [`EVENTS`] and, for each
/// event, the line of the user's code in its stack and the function that this line called.
pub static EVENTS_WITH_LINES: Table = Table {
    name: "events",
    columns: &{
        let mut columns = [Column::new("line", Kind::Text).nullable(); COLUMNS.len() + 2];
        let mut place = 0;
        while place < COLUMNS.len() {
            columns[place] = COLUMNS[place];
            place += 1;
        }
        columns[COLUMNS.len() + 1] = Column::new("called", Kind::Text).nullable();
        columns
    },
};

/// The line in the user's code that an event's stack contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLine {
    /// The line, if it is known.
    pub line: Option<String>,
    /// The function that the line called, if it is known.
    pub called: Option<String>,
}

/// The names of a scope's module, phase and operator.
struct ScopeNames {
    module: Option<ByteArray>,
    phase: Option<ByteArray>,
    operator: Option<ByteArray>,
}

/// The state needed for writing a snapshot's events.
struct Events<'a> {
    snapshot: &'a Snapshot,
    allocations: Allocations,
    /// The names for each scope id. The last entry stands for ids that the snapshot does not contain.
    scopes: Vec<ScopeNames>,
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
    for rows in row_groups(snapshot) {
        writer.write_group(events.build_columns(rows, |_| true).1)?;
    }
    writer.finish()
}

/// Writes the events of some devices as [`EVENTS_WITH_LINES`].
pub(crate) fn write_with_lines(
    snapshot: &Snapshot,
    devices: &[DeviceId],
    line: &mut dyn FnMut(StackId) -> EventLine,
    mut output: impl Write,
) -> io::Result<()> {
    let mut writer = TableWriter::new(Vec::new(), &EVENTS_WITH_LINES, &[])?;
    let mut events = Events::of(snapshot);
    let mut lines: HashMap<StackId, (Option<ByteArray>, Option<ByteArray>)> = HashMap::new();
    for rows in row_groups(snapshot) {
        let (rows, mut columns) = events.build_columns(rows, |device| devices.contains(&device));
        if rows.is_empty() {
            continue;
        }
        let stacks = rows.iter().map(|&row| snapshot.events.stack[row]);
        let (mut own, mut called) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for stack in stacks {
            let known = lines.entry(stack).or_insert_with(|| {
                let known = if stack.is_none() { EventLine::default() } else { line(stack) };
                let text = |text: Option<String>| text.map(|text| ByteArray::from(text.as_str()));
                (text(known.line), text(known.called))
            });
            own.push(known.0.clone());
            called.push(known.1.clone());
        }
        columns.push(Cells::texts(own.into_iter()));
        columns.push(Cells::texts(called.into_iter()));
        writer.write_group(columns)?;
        output.write_all(&writer.take_written())?;
    }
    output.write_all(&writer.finish_into_bytes()?)
}

/// Returns the ranges of rows that are written together.
fn row_groups(snapshot: &Snapshot) -> impl Iterator<Item = Range<usize>> {
    let rows = snapshot.events.len();
    (0..rows).step_by(ROWS_PER_GROUP).map(move |from| from..rows.min(from + ROWS_PER_GROUP))
}

impl<'a> Events<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| ByteArray::from(text));
        let scopes = (0..=snapshot.scopes.rows.len()).map(|id| {
            let place = snapshot.scopes.place(ScopeId(id as u32));
            ScopeNames {
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

    fn scope_names(&self, scope: ScopeId) -> &ScopeNames {
        &self.scopes[scope.index().min(self.scopes.len() - 1)]
    }

    /// Returns the rows that belong to the selected devices, and their columns in the order of [`EVENTS`]. The ranges
    /// of successive calls must be contiguous.
    fn build_columns(
        &mut self,
        rows: Range<usize>,
        is_selected: impl Fn(DeviceId) -> bool,
    ) -> (Vec<usize>, Vec<Cells>) {
        let snapshot = self.snapshot;
        let table = &snapshot.events;
        let allocated = self.allocations.find_allocation_rows(snapshot, rows.clone());
        let begin = rows.start;
        let rows: Vec<usize> = rows.filter(|&row| is_selected(table.device[row])).collect();
        let each = || rows.iter().copied();
        let ordinals = snapshot.ordinals();
        let scoped =
            |of: fn(&ScopeNames) -> &Option<ByteArray>| match each().all(|row| table.scope[row].is_none()) {
                true => Cells::nulls(Kind::Text, rows.len()),
                false => Cells::texts(each().map(|row| of(self.scope_names(table.scope[row])).clone())),
            };
        let known = |row: usize| {
            let thread: ThreadId = table.thread[row];
            snapshot.threads.get(thread.index()).filter(|_| !thread.is_none())
        };
        let is_oom = |row: usize| table.action[row] == Action::Oom;
        let columns = vec![
            Cells::all(Values::Long(each().map(|row| row as i64).collect())),
            Cells::all(Values::Int(each().map(|row| ordinals.of(table.device[row]).into()).collect())),
            Cells::longs(each().map(|row| time_us(snapshot, row))),
            Cells::all(Values::Text(
                each().map(|row| self.actions[table.action[row] as usize].clone()).collect(),
            )),
            Cells::longs(each().map(|row| allocated[row - begin])),
            // Addresses are reinterpreted as signed, so they are negative from 2^63 on, as in PyTorch's own files.
            Cells::longs(each().map(|row| (!is_oom(row)).then_some(table.address[row] as i64))),
            Cells::all(Values::Long(
                each().map(|row| i64::try_from(table.size_bytes[row]).unwrap_or(i64::MAX)).collect(),
            )),
            Cells::all(Values::Double(each().map(|row| snapshot.weighed_event(row).blocks).collect())),
            Cells::longs(each().map(|row| {
                let free = snapshot.oom_free_bytes(row).filter(|_| is_oom(row))?;
                Some(i64::try_from(free).unwrap_or(i64::MAX))
            })),
            Cells::all(Values::Long(each().map(|row| table.stream[row].0 as i64).collect())),
            Cells::all(Values::Int(each().map(|row| table.stack[row].0 as i32).collect())),
            scoped(|scoped| &scoped.module),
            scoped(|scoped| &scoped.phase),
            scoped(|scoped| &scoped.operator),
            match snapshot.categories.get() {
                None => Cells::nulls(Kind::Text, rows.len()),
                Some(categories) => Cells::texts(each().map(|row| {
                    let number = usize::from(*categories.of_event.get(row)?);
                    self.categories.get(number.checked_sub(1)?).cloned()
                })),
            },
            Cells::texts(
                each().map(|row| known(row).and_then(|_| self.threads[table.thread[row].index()].clone())),
            ),
            Cells::longs(each().map(|row| known(row).map(|thread| thread.os_id as i64))),
        ];
        (rows, columns)
    }
}

/// Returns the event's time in microseconds since the origin of the snapshot's times, or `None` for an event in a
/// PyTorch file that has no time.
fn time_us(snapshot: &Snapshot, row: usize) -> Option<i64> {
    snapshot.seconds_at(row).map(|seconds| (seconds * 1e6).round() as i64)
}

/// The allocations that are live after the events visited so far, as rows, keyed by device and address. Unlike the
/// lifetimes of memtrack-report, they are found one group of rows at a time, for the completion of a free too.
#[derive(Default)]
struct Allocations {
    live: HashMap<(DeviceId, u64), usize>,
}

impl Allocations {
    /// Visits the events in `rows` and returns, for each event that frees a block or requests its free, the row of the
    /// block's allocation. The result is `None` for other events, and if the allocation is not in the trace. The ranges
    /// of successive calls must be contiguous.
    fn find_allocation_rows(&mut self, snapshot: &Snapshot, rows: Range<usize>) -> Vec<Option<i64>> {
        let events = &snapshot.events;
        rows.map(|row| {
            let place = (events.device[row], events.address[row]);
            let allocated = match events.action[row] {
                Action::Alloc => {
                    self.live.insert(place, row);
                    None
                }
                Action::FreeRequested => self.live.get(&place).copied(),
                Action::Free | Action::FreeCompleted => self.live.remove(&place),
                _ => None,
            };
            allocated.map(|row| row as i64)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::Event;

    #[test]
    fn free_refers_to_latest_allocation_at_its_address() {
        let mut snapshot = Snapshot::default();
        let actions = [
            Action::FreeCompleted,
            Action::Alloc,
            Action::FreeRequested,
            Action::FreeCompleted,
            Action::Alloc,
            Action::Free,
        ];
        for action in actions {
            snapshot.events.push(&Event { action, address: 512, ..Event::BLANK });
        }
        let mut allocations = Allocations::default();
        let mut found = allocations.find_allocation_rows(&snapshot, 0..2);
        found.extend(allocations.find_allocation_rows(&snapshot, 2..6));
        assert_eq!(found, [None, None, Some(1), Some(1), None, Some(4)]);
    }
}
