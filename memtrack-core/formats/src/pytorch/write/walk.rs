//! Traverses a PyTorch snapshot from the root down, in the order of the file from which it was read.

use super::{Container, SharedId, Sink};
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::{Key, Kind, Part, PyTorch, Records, event_value_at, known};
use memtrack_model::snapshot::{FrameId, Snapshot, StringId, Value};
use std::io;
use std::ops::Range;

/// Visits the entire snapshot.
pub(super) fn walk(snapshot: &Snapshot, sink: &mut impl Sink) -> io::Result<()> {
    let pytorch = snapshot.pytorch.as_deref();
    let pytorch = pytorch
        .ok_or_else(|| io::Error::other("a recording must be converted to a PyTorch snapshot first"))?;
    Walker { snapshot, pytorch, sink }.root()
}

struct Walker<'a, S> {
    snapshot: &'a Snapshot,
    pytorch: &'a PyTorch,
    sink: &'a mut S,
}

/// The location of a record's columns. Some columns of events are in the snapshot's own table.
#[derive(Clone, Copy)]
enum Table {
    Events,
    Other,
}

fn list_or_tuple(is_tuple: bool) -> Container {
    if is_tuple { Container::Tuple } else { Container::List }
}

impl<S: Sink> Walker<'_, S> {
    fn root(&mut self) -> io::Result<()> {
        let pytorch = self.pytorch;
        if pytorch.list_only {
            return self.records(&pytorch.segments, 0..pytorch.segments.len(), Table::Other);
        }
        self.sink.begin(Container::Dict, pytorch.root.len(), None)?;
        for (key, part) in &pytorch.root {
            self.sink.item()?;
            self.value(key)?;
            self.sink.colon()?;
            match part {
                Part::Segments => {
                    let container = list_or_tuple(pytorch.segments_are_a_tuple);
                    let rows = 0..pytorch.device_segments;
                    self.records_in(container, &pytorch.segments, rows, Table::Other)?;
                }
                Part::HostSegments => {
                    let rows = pytorch.device_segments..pytorch.segments.len();
                    self.records(&pytorch.segments, rows, Table::Other)?;
                }
                Part::DeviceTraces => {
                    let container = list_or_tuple(pytorch.traces_are_a_tuple);
                    self.sink.begin(container, pytorch.traces.len(), None)?;
                    for rows in &pytorch.traces {
                        self.sink.item()?;
                        self.records(&pytorch.events, rows.clone(), Table::Events)?;
                        self.sink.item_end()?;
                    }
                    self.sink.end()?;
                }
                Part::HostTraces => {
                    self.records(&pytorch.events, pytorch.host_trace.clone(), Table::Events)?;
                }
                Part::Annotations => {
                    self.records(&pytorch.annotations, 0..pytorch.annotations.len(), Table::Other)?;
                }
                Part::Value(value) => self.value(value)?,
            }
            self.sink.item_end()?;
        }
        self.sink.end()
    }

    /// Writes a list of dictionaries.
    fn records(&mut self, records: &Records, rows: Range<usize>, table: Table) -> io::Result<()> {
        self.records_in(Container::List, records, rows, table)
    }

    fn records_in(
        &mut self,
        container: Container,
        records: &Records,
        rows: Range<usize>,
        table: Table,
    ) -> io::Result<()> {
        self.sink.begin(container, rows.len(), None)?;
        for row in rows {
            self.sink.item()?;
            self.record(records, row, table, None)?;
            self.sink.item_end()?;
        }
        self.sink.end()
    }

    fn record(
        &mut self,
        records: &Records,
        row: usize,
        table: Table,
        shared: Option<SharedId>,
    ) -> io::Result<()> {
        let keys = &records.shape_of(row).keys;
        let mut odd = records.exact_values(row).iter().peekable();
        self.sink.begin(Container::Dict, keys.len(), shared)?;
        for (place, key) in keys.iter().enumerate() {
            self.sink.item()?;
            self.value(key)?;
            self.sink.colon()?;
            if let Some(odd) = odd.next_if(|odd| usize::from(odd.place) == place) {
                self.value(&odd.value)?;
            } else if let Some(key) = known(key) {
                self.column(records, row, place, key, table)?;
            } else {
                self.sink.none()?;
            }
            self.sink.item_end()?;
        }
        self.sink.end()
    }

    /// Writes the value of a known key from its column.
    fn column(
        &mut self,
        records: &Records,
        row: usize,
        place: usize,
        key: Key,
        table: Table,
    ) -> io::Result<()> {
        let events = &self.snapshot.events;
        match (table, key) {
            (Table::Events, Key::Frames) => return self.stack(events.stack[row]),
            (Table::Events, Key::Size) => return self.unsigned(events.size_bytes[row]),
            (Table::Events, Key::Stream) => return self.unsigned(events.stream[row].0),
            (Table::Events, Key::TimeUs) => return self.unsigned(events.ticks[row]),
            (Table::Events, Key::Action | Key::Addr | Key::DeviceFree) => {
                let value = event_value_at(events, records, row, place).unwrap_or(Value::None);
                return self.value(&value);
            }
            _ => {}
        }
        match key.kind() {
            Kind::Unsigned => self.unsigned(records.number(row, key)),
            Kind::Signed => self.sink.int(records.number(row, key) as i64),
            Kind::Flag => self.sink.bool(records.number(row, key) != 0),
            Kind::Text => self.string(records.text(row, key)),
            Kind::Stack => self.stack(records.stack(row, key)),
            Kind::Pool => self.pool(records.pool(row, key)),
            Kind::Rows => self.records(&self.pytorch.blocks, records.rows(row, key), Table::Other),
            Kind::Other => self.sink.none(),
        }
    }

    fn unsigned(&mut self, number: u64) -> io::Result<()> {
        match i64::try_from(number) {
            Ok(number) => self.sink.int(number),
            Err(_) => self.value(&Value::integer(number.into())),
        }
    }

    fn string(&mut self, id: StringId) -> io::Result<()> {
        self.sink.string(id, self.snapshot.strings.bytes(id))
    }

    fn pool(&mut self, pool: (u64, u64)) -> io::Result<()> {
        let shared = SharedId::Pool(pool.0, pool.1);
        if self.sink.recall(shared)? {
            return Ok(());
        }
        self.sink.begin(Container::Tuple, 2, Some(shared))?;
        for number in [pool.0, pool.1] {
            self.sink.item()?;
            self.unsigned(number)?;
            self.sink.item_end()?;
        }
        self.sink.end()
    }

    fn stack(&mut self, stack: StackId) -> io::Result<()> {
        let shared = SharedId::Stack(stack.0);
        // Empty lists are as long as references to them, and no reader expects them to be shared.
        if !stack.is_none() && self.sink.recall(shared)? {
            return Ok(());
        }
        let frames = self.snapshot.named.get(stack);
        self.sink.begin(Container::List, frames.len(), Some(shared).filter(|_| !stack.is_none()))?;
        for &frame in frames {
            self.sink.item()?;
            self.frame(frame)?;
            self.sink.item_end()?;
        }
        self.sink.end()
    }

    fn frame(&mut self, frame: FrameId) -> io::Result<()> {
        let shared = SharedId::Frame(frame.0);
        if self.sink.recall(shared)? {
            return Ok(());
        }
        self.record(&self.snapshot.frames.records, frame.index(), Table::Other, Some(shared))
    }

    fn value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::None => self.sink.none(),
            Value::Bool(truth) => self.sink.bool(*truth),
            Value::Int(number) => self.sink.int(*number),
            Value::Big(bytes) => self.sink.big(bytes),
            Value::Float(number) => self.sink.float(*number),
            Value::Str(id) => self.string(*id),
            Value::Bytes(bytes) => self.sink.bytes(bytes),
            Value::Tuple(items) => self.values(Container::Tuple, items),
            Value::List(items) => self.values(Container::List, items),
            Value::Set(items) => self.values(Container::Set, items),
            Value::FrozenSet(items) => self.values(Container::FrozenSet, items),
            Value::Stack(stack) => self.stack(*stack),
            Value::Frame(frame) => self.frame(*frame),
            Value::Dict(entries) => {
                let shared = SharedId::Value(entries.as_ptr() as usize);
                if !entries.is_empty() && self.sink.recall(shared)? {
                    return Ok(());
                }
                self.sink.begin(
                    Container::Dict,
                    entries.len(),
                    Some(shared).filter(|_| !entries.is_empty()),
                )?;
                for (key, value) in entries.iter() {
                    self.sink.item()?;
                    self.value(key)?;
                    self.sink.colon()?;
                    self.value(value)?;
                    self.sink.item_end()?;
                }
                self.sink.end()
            }
        }
    }

    fn values(&mut self, container: Container, items: &[Value]) -> io::Result<()> {
        let shared = match (container, items) {
            // The reader stores small pairs by value, so it is unknown which ones were shared. Share all
            // equal pairs.
            (Container::Tuple, &[Value::Int(first @ 0..), Value::Int(second @ 0..)]) => {
                Some(SharedId::Pool(first as u64, second as u64))
            }
            // All empty containers have the same address, but they are not the same value.
            _ => Some(SharedId::Value(items.as_ptr() as usize)).filter(|_| !items.is_empty()),
        };
        if let Some(shared) = shared
            && self.sink.recall(shared)?
        {
            return Ok(());
        }
        self.sink.begin(container, items.len(), shared)?;
        for item in items {
            self.sink.item()?;
            self.value(item)?;
            self.sink.item_end()?;
        }
        self.sink.end()
    }
}
