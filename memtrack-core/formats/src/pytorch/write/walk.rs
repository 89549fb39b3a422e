//! Traverses a PyTorch snapshot from the root down, in the order of the file that it was read from.

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
    Walker { snapshot, pytorch, sink }.walk_root()
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

fn sequence_kind(is_tuple: bool) -> Container {
    if is_tuple { Container::Tuple } else { Container::List }
}

impl<S: Sink> Walker<'_, S> {
    fn walk_root(&mut self) -> io::Result<()> {
        let pytorch = self.pytorch;
        if pytorch.list_only {
            return self.walk_records(&pytorch.segments, 0..pytorch.segments.len(), Table::Other);
        }
        self.sink.begin_container(Container::Dict, pytorch.root.len(), None)?;
        for (key, part) in &pytorch.root {
            self.sink.begin_item()?;
            self.walk_value(key)?;
            self.sink.end_key()?;
            match part {
                Part::Segments => {
                    let container = sequence_kind(pytorch.segments_are_a_tuple);
                    let rows = 0..pytorch.device_segments;
                    self.walk_records_in(container, &pytorch.segments, rows, Table::Other)?;
                }
                Part::HostSegments => {
                    let rows = pytorch.device_segments..pytorch.segments.len();
                    self.walk_records(&pytorch.segments, rows, Table::Other)?;
                }
                Part::DeviceTraces => {
                    let container = sequence_kind(pytorch.traces_are_a_tuple);
                    self.sink.begin_container(container, pytorch.traces.len(), None)?;
                    for rows in &pytorch.traces {
                        self.sink.begin_item()?;
                        self.walk_records(&pytorch.events, rows.clone(), Table::Events)?;
                        self.sink.end_item()?;
                    }
                    self.sink.end_container()?;
                }
                Part::HostTraces => {
                    self.walk_records(&pytorch.events, pytorch.host_trace.clone(), Table::Events)?;
                }
                Part::Annotations => {
                    self.walk_records(&pytorch.annotations, 0..pytorch.annotations.len(), Table::Other)?;
                }
                Part::Value(value) => self.walk_value(value)?,
            }
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }

    /// Writes a list of dictionaries.
    fn walk_records(&mut self, records: &Records, rows: Range<usize>, table: Table) -> io::Result<()> {
        self.walk_records_in(Container::List, records, rows, table)
    }

    fn walk_records_in(
        &mut self,
        container: Container,
        records: &Records,
        rows: Range<usize>,
        table: Table,
    ) -> io::Result<()> {
        self.sink.begin_container(container, rows.len(), None)?;
        for row in rows {
            self.sink.begin_item()?;
            self.walk_record(records, row, table, None)?;
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }

    fn walk_record(
        &mut self,
        records: &Records,
        row: usize,
        table: Table,
        shared: Option<SharedId>,
    ) -> io::Result<()> {
        let keys = &records.shape_of(row).keys;
        let mut exact = records.exact_values(row).iter().peekable();
        self.sink.begin_container(Container::Dict, keys.len(), shared)?;
        for (place, key) in keys.iter().enumerate() {
            self.sink.begin_item()?;
            self.walk_value(key)?;
            self.sink.end_key()?;
            if let Some(exact) = exact.next_if(|exact| usize::from(exact.place) == place) {
                self.walk_value(&exact.value)?;
            } else if let Some(key) = known(key) {
                self.walk_column(records, row, place, key, table)?;
            } else {
                self.sink.write_none()?;
            }
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }

    /// Writes the value of a known key from its column.
    fn walk_column(
        &mut self,
        records: &Records,
        row: usize,
        place: usize,
        key: Key,
        table: Table,
    ) -> io::Result<()> {
        let events = &self.snapshot.events;
        match (table, key) {
            (Table::Events, Key::Frames) => return self.walk_stack(events.stack[row]),
            (Table::Events, Key::Size) => return self.walk_unsigned(events.size_bytes[row]),
            (Table::Events, Key::Stream) => return self.walk_unsigned(events.stream[row].0),
            (Table::Events, Key::TimeUs) => return self.walk_unsigned(events.ticks[row]),
            (Table::Events, Key::Action | Key::Addr | Key::DeviceFree) => {
                let value = event_value_at(events, records, row, place).unwrap_or(Value::None);
                return self.walk_value(&value);
            }
            _ => {}
        }
        match key.kind() {
            Kind::Unsigned => self.walk_unsigned(records.number(row, key)),
            Kind::Signed => self.sink.write_int(records.number(row, key) as i64),
            Kind::Flag => self.sink.write_bool(records.number(row, key) != 0),
            Kind::Text => self.walk_string(records.text(row, key)),
            Kind::Stack => self.walk_stack(records.stack(row, key)),
            Kind::Pool => self.walk_pool(records.pool(row, key)),
            Kind::Rows => self.walk_records(&self.pytorch.blocks, records.rows(row, key), Table::Other),
            Kind::Other => self.sink.write_none(),
        }
    }

    fn walk_unsigned(&mut self, number: u64) -> io::Result<()> {
        match i64::try_from(number) {
            Ok(number) => self.sink.write_int(number),
            Err(_) => self.walk_value(&Value::integer(number.into())),
        }
    }

    fn walk_string(&mut self, id: StringId) -> io::Result<()> {
        self.sink.write_string(id, self.snapshot.strings.bytes(id))
    }

    fn walk_pool(&mut self, pool: (u64, u64)) -> io::Result<()> {
        let shared = SharedId::Pool(pool.0, pool.1);
        if self.sink.try_write_reference(shared)? {
            return Ok(());
        }
        self.sink.begin_container(Container::Tuple, 2, Some(shared))?;
        for number in [pool.0, pool.1] {
            self.sink.begin_item()?;
            self.walk_unsigned(number)?;
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }

    fn walk_stack(&mut self, stack: StackId) -> io::Result<()> {
        let shared = SharedId::Stack(stack.0);
        // Empty lists are as long as references to them, and no reader expects them to be shared.
        if !stack.is_none() && self.sink.try_write_reference(shared)? {
            return Ok(());
        }
        let frames = self.snapshot.named.get(stack);
        self.sink.begin_container(
            Container::List,
            frames.len(),
            Some(shared).filter(|_| !stack.is_none()),
        )?;
        for &frame in frames {
            self.sink.begin_item()?;
            self.walk_frame(frame)?;
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }

    fn walk_frame(&mut self, frame: FrameId) -> io::Result<()> {
        let shared = SharedId::Frame(frame.0);
        if self.sink.try_write_reference(shared)? {
            return Ok(());
        }
        self.walk_record(&self.snapshot.frames.records, frame.index(), Table::Other, Some(shared))
    }

    fn walk_value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::None => self.sink.write_none(),
            Value::Bool(truth) => self.sink.write_bool(*truth),
            Value::Int(number) => self.sink.write_int(*number),
            Value::Big(bytes) => self.sink.write_big_int(bytes),
            Value::Float(number) => self.sink.write_float(*number),
            Value::Str(id) => self.walk_string(*id),
            Value::Bytes(bytes) => self.sink.write_bytes(bytes),
            Value::Tuple(items) => self.walk_values(Container::Tuple, items),
            Value::List(items) => self.walk_values(Container::List, items),
            Value::Set(items) => self.walk_values(Container::Set, items),
            Value::FrozenSet(items) => self.walk_values(Container::FrozenSet, items),
            Value::Stack(stack) => self.walk_stack(*stack),
            Value::Frame(frame) => self.walk_frame(*frame),
            Value::Dict(entries) => {
                let shared = SharedId::Value(entries.as_ptr() as usize);
                if !entries.is_empty() && self.sink.try_write_reference(shared)? {
                    return Ok(());
                }
                self.sink.begin_container(
                    Container::Dict,
                    entries.len(),
                    Some(shared).filter(|_| !entries.is_empty()),
                )?;
                for (key, value) in entries.iter() {
                    self.sink.begin_item()?;
                    self.walk_value(key)?;
                    self.sink.end_key()?;
                    self.walk_value(value)?;
                    self.sink.end_item()?;
                }
                self.sink.end_container()
            }
        }
    }

    fn walk_values(&mut self, container: Container, items: &[Value]) -> io::Result<()> {
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
            && self.sink.try_write_reference(shared)?
        {
            return Ok(());
        }
        self.sink.begin_container(container, items.len(), shared)?;
        for item in items {
            self.sink.begin_item()?;
            self.walk_value(item)?;
            self.sink.end_item()?;
        }
        self.sink.end_container()
    }
}
