//! Walks from the root value through the snapshot. Events and frames are already in their tables. This step turns lists
//! into ranges of rows, and segments and blocks into records, and checks the structure.
//!
//! A value of another type where a list is expected is refused. A report would treat such a value as an empty list and
//! print 0, although the file does contain data, in an unknown form. All other unusual values are kept unchanged.

use crate::LoadError;
use crate::pickle::PickleErrorKind;
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::snapshot::{Order, into_snapshot};
use crate::pytorch::read::tables::{RecordTable, Table, TableBuilder, remove_duplicates};
use crate::pytorch::read::values::RepeatedTraces;
use memtrack_model::snapshot::pytorch::{Key, Part, PyTorch, Records};
use memtrack_model::snapshot::{Snapshot, Value};

/// The reason why a snapshot was refused in the last step.
pub(crate) enum Refusal {
    /// A value cannot be represented.
    Kind(PickleErrorKind),
    /// The value is not a snapshot.
    Shape(LoadError),
}

impl From<PickleErrorKind> for Refusal {
    fn from(kind: PickleErrorKind) -> Self {
        Self::Kind(kind)
    }
}

/// Makes the snapshot from the root value.
pub(crate) fn finish(builder: TableBuilder, root: Cell) -> Result<Snapshot, Refusal> {
    let mut finish = Finisher { builder, pytorch: PyTorch::default(), order: Order::default() };
    finish.finish_root(root)?;
    Ok(into_snapshot(finish.builder, finish.pytorch, finish.order))
}

struct Finisher {
    builder: TableBuilder,
    pytorch: PyTorch,
    order: Order,
}

impl Finisher {
    fn finish_root(&mut self, root: Cell) -> Result<(), Refusal> {
        if root.tag() == cell::LIST {
            self.refuse_snapshots(root)?;
            self.pytorch.list_only = true;
            self.add_segments(root, "the list")?;
            self.pytorch.device_segments = self.builder.tables[Table::Segments as usize].records.len();
            return Ok(());
        }
        if root.tag() != cell::DICT {
            return Err(shape_error("the top level", root.type_name(), "a dictionary or a list of segments"));
        }
        let items = remove_duplicates(self.builder.heap.body(root));
        let pairs = items.as_chunks::<2>().0;
        let find = |key: Key| pairs.iter().find(|pair| pair[0] == Cell::key(key)).map(|pair| pair[1]);
        let (segments, traces) = (find(Key::Segments), find(Key::DeviceTraces));
        if segments.is_none() && traces.is_none() {
            return Err(shape_error(
                "the top level",
                "a dictionary with other keys",
                "one with `segments` or `device_traces`",
            ));
        }
        // Device rows precede host rows, regardless of the order of the keys.
        if let Some(segments) = segments {
            self.pytorch.segments_are_a_tuple = segments.tag() == cell::TUPLE;
            self.add_segments(segments, "segments")?;
        }
        self.pytorch.device_segments = self.builder.tables[Table::Segments as usize].records.len();
        if let Some(traces) = traces {
            self.pytorch.traces_are_a_tuple = traces.tag() == cell::TUPLE;
            self.add_traces(traces)?;
        }
        for &[key, value] in pairs {
            let part = match key.as_key() {
                Some(Key::Segments) => Part::Segments,
                Some(Key::DeviceTraces) => Part::DeviceTraces,
                Some(Key::HostSegments) if value != Cell::NONE => {
                    self.add_segments(value, "host_segments")?;
                    Part::HostSegments
                }
                Some(Key::HostTraces) if value != Cell::NONE => {
                    let value = self.convert_to_list(value, "host_traces")?;
                    let start = self.order.len();
                    self.add_trace(value, "host_traces")?;
                    self.pytorch.host_trace = start..self.order.len();
                    Part::HostTraces
                }
                Some(Key::ExternalAnnotations) if self.are_dictionaries(value) => {
                    for annotation in self.list_items(value, "external_annotations")? {
                        let items = self.builder.heap.body(annotation).to_vec();
                        self.builder.add_record(Table::Annotations, &items)?;
                    }
                    Part::Annotations
                }
                _ => Part::Value(self.builder.convert_value(value, 1)?),
            };
            let key = self.builder.convert_value(key, 1)?;
            self.pytorch.root.push((key, part));
        }
        Ok(())
    }

    /// Refuses a list of complete snapshots, such as the snapshots of all ranks. Read as a list of segments, it would
    /// look like an empty device.
    fn refuse_snapshots(&self, list: Cell) -> Result<(), Refusal> {
        let is_snapshot = |item: &Cell| {
            self.builder.heap.is_plain_dictionary(*item)
                && self
                    .builder
                    .heap
                    .body(*item)
                    .iter()
                    .step_by(2)
                    .any(|key| matches!(key.as_key(), Some(Key::Segments | Key::DeviceTraces)))
        };
        match self.items_of_list(list, "the list")?.iter().position(is_snapshot) {
            Some(index) => Err(shape_error(
                &format!("the list[{index}]"),
                "a complete snapshot",
                "the dictionary of a segment (write each snapshot into a file of its own)",
            )),
            None => Ok(()),
        }
    }

    fn are_dictionaries(&mut self, list: Cell) -> bool {
        let Ok(list) = self.convert_to_list(list, "") else { return false };
        let heap = &self.builder.heap;
        heap.containers[list.row()].tag() != cell::STACK
            && heap.body(list).iter().all(|&item| heap.is_plain_dictionary(item))
    }

    /// Returns the list at `path`. A tuple is converted to a list, because Python can iterate over either.
    fn convert_to_list(&mut self, list: Cell, path: &str) -> Result<Cell, Refusal> {
        match self.builder.as_list(list)? {
            Some(list) => Ok(list),
            None => Err(shape_error(path, list.type_name(), "a list")),
        }
    }

    /// Returns the items of the list at `path`.
    fn list_items(&mut self, list: Cell, path: &str) -> Result<Vec<Cell>, Refusal> {
        let list = self.convert_to_list(list, path)?;
        self.items_of_list(list, path).map(<[Cell]>::to_vec)
    }

    /// Returns the items of a list without copying them.
    fn items_of_list(&self, list: Cell, path: &str) -> Result<&[Cell], Refusal> {
        match self.builder.heap.containers[list.row()].tag() {
            cell::STACK if self.builder.heap.containers[list.row()].payload() != 0 => {
                Err(shape_error(path, "a list of frames", "something else"))
            }
            _ => Ok(self.builder.heap.body(list)),
        }
    }

    fn add_segments(&mut self, list: Cell, path: &str) -> Result<(), Refusal> {
        for (index, segment) in self.list_items(list, path)?.into_iter().enumerate() {
            if !self.builder.heap.is_plain_dictionary(segment) {
                let path = format!("{path}[{index}]");
                return Err(shape_error(&path, segment.type_name(), "the dictionary of a segment"));
            }
            let items = self.builder.heap.body(segment).to_vec();
            let row = self.builder.add_record(Table::Segments, &items)?;
            check_segment(&self.builder.tables, row)
                .map_err(|found| found.into_refusal(&format!("{path}[{index}]")))?;
            self.fill_addresses(row);
        }
        Ok(())
    }

    /// Sets the addresses of blocks that have none. Such a block starts where the previous block in the segment ends.
    fn fill_addresses(&mut self, segment: usize) {
        let [.., segments, blocks, _] = &mut self.builder.tables;
        let mut address = segments.records.number(segment, Key::Address);
        for block in segments.records.rows(segment, Key::Blocks) {
            if blocks.records.has(block, Key::Address) {
                address = blocks.records.number(block, Key::Address);
            } else {
                blocks.records.set(block, Key::Address, address);
            }
            address = address.wrapping_add(blocks.records.number(block, Key::Size));
        }
    }

    fn add_traces(&mut self, lists: Cell) -> Result<(), Refusal> {
        let lists = self.list_items(lists, "device_traces")?;
        if lists.len() >= usize::from(u16::MAX) {
            return Err(PickleErrorKind::TooLarge { what: "devices", limit: u16::MAX.into() }.into());
        }
        let mut repeated = RepeatedTraces::default();
        for (device, list) in lists.into_iter().enumerate() {
            let path = format!("device_traces[{device}]");
            let list = self.convert_to_list(list, &path)?;
            repeated.add(list, self.items_of_list(list, &path)?.len())?;
            let start = self.order.len();
            self.add_trace(list, &path)?;
            self.pytorch.traces.push(start..self.order.len());
        }
        Ok(())
    }

    fn add_trace(&mut self, list: Cell, path: &str) -> Result<(), Refusal> {
        // Iterate by index, because a copy of the list would take a tenth of the memory needed for loading.
        for index in 0..self.items_of_list(list, path)?.len() {
            let Some(&event) = self.builder.heap.body(list).get(index) else { break };
            // A dictionary that has only one key or comes from a text protocol was not folded when it was filled.
            self.builder.settle_event(event)?;
            let folded =
                if event.tag() == cell::DICT { self.builder.heap.containers[event.row()] } else { event };
            if folded.tag() != cell::EVENT {
                let found = if event.tag() == cell::DICT {
                    "a dictionary without `action`"
                } else {
                    event.type_name()
                };
                return Err(shape_error(&format!("{path}[{index}]"), found, "an event"));
            }
            if !self.builder.skips_events {
                check_event(&self.builder.tables, folded.row())
                    .map_err(|found| found.into_refusal(&format!("{path}[{index}]")))?;
                self.order.push(folded.payload() as u32);
            }
        }
        Ok(())
    }
}

fn shape_error(path: &str, found: &'static str, wanted: &'static str) -> Refusal {
    Refusal::Shape(LoadError::Shape { path: path.to_owned(), found, wanted })
}

/// A value that takes the place of a list.
#[derive(Debug)]
struct WrongValue {
    /// The position of the value, relative to the record that was checked.
    path: String,
    found: &'static str,
    wanted: &'static str,
}

const FRAME_LIST: &str = "a list of frames";

impl WrongValue {
    fn new(path: &str, value: &Value, wanted: &'static str) -> Self {
        Self { path: path.to_owned(), found: type_name(value), wanted }
    }

    fn within(mut self, path: &str) -> Self {
        self.path.insert_str(0, path);
        self
    }

    /// Returns the error for the record at `path`.
    fn into_refusal(self, path: &str) -> Refusal {
        shape_error(&format!("{path}{}", self.path), self.found, self.wanted)
    }
}

/// Checks an event.
fn check_event(tables: &[RecordTable; 5], row: usize) -> Result<(), WrongValue> {
    check_frames(&tables[Table::Events as usize].records, row)
}

/// Checks a segment and its blocks.
fn check_segment(tables: &[RecordTable; 5], row: usize) -> Result<(), WrongValue> {
    let [segments, blocks] = [Table::Segments, Table::Blocks].map(|table| &tables[table as usize].records);
    check_frames(segments, row)?;
    if let Some(exact) = segments.exact_under(row, Key::Blocks) {
        return Err(WrongValue::new(".blocks", exact, "a list of blocks"));
    }
    for (index, block) in segments.rows(row, Key::Blocks).enumerate() {
        let path = |found: WrongValue| found.within(&format!(".blocks[{index}]"));
        check_frames(blocks, block).map_err(path)?;
        if let Some(exact) = blocks.exact_under(block, Key::History) {
            check_history(exact).map_err(path)?;
        }
    }
    Ok(())
}

/// Checks a block's history: the list of its tenants, which are the allocations that the block serves or served.
fn check_history(value: &Value) -> Result<(), WrongValue> {
    let tenants = match value {
        Value::None => return Ok(()),
        Value::List(tenants) => tenants,
        _ => return Err(WrongValue::new(".history", value, "a list of tenants")),
    };
    for (index, tenant) in tenants.iter().enumerate() {
        let path = format!(".history[{index}]");
        let Value::Dict(entries) = tenant else {
            return Err(WrongValue::new(&path, tenant, "the dictionary of a tenant"));
        };
        let frames = Value::Str(Key::Frames.id());
        match entries.iter().find(|(key, _)| *key == frames) {
            Some((_, value)) if !are_frames(value) => {
                return Err(WrongValue::new(&format!("{path}.frames"), value, FRAME_LIST));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_frames(records: &Records, row: usize) -> Result<(), WrongValue> {
    match records.exact_under(row, Key::Frames) {
        Some(exact) if !are_frames(exact) => Err(WrongValue::new(".frames", exact, FRAME_LIST)),
        _ => Ok(()),
    }
}

/// Returns whether a value without a column is a valid list of frames, i.e. a stack, an empty list, or
/// `None`.
fn are_frames(value: &Value) -> bool {
    match value {
        Value::None | Value::Stack(_) => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a boolean",
        Value::Int(_) | Value::Big(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Str(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::Tuple(_) => "a tuple of something else",
        Value::List(_) => "a list of something else",
        Value::Stack(_) => "a list of frames",
        Value::Dict(_) | Value::Frame(_) => "a dictionary",
        Value::Set(_) | Value::FrozenSet(_) => "a set",
    }
}
