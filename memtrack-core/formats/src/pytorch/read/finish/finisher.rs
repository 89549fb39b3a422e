//! The last step of reading, which turns the root value into the snapshot. Events and frames are already in their
//! tables. This step turns lists into ranges of rows, and segments and blocks into records, and checks the structure.

use crate::LoadError;
use crate::pickle::PickleErrorKind;
use crate::pytorch::read::finish::misplaced;
use crate::pytorch::read::finish::order::Order;
use crate::pytorch::read::fold::repeated::RepeatedTraces;
use crate::pytorch::read::fold::rows::{Table, TableBuilder};
use crate::pytorch::read::fold::shapes::remove_duplicates;
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::{Key, Part, PyTorch, Records};
use memtrack_model::snapshot::{Clock, EventTable, FrameTable, Meta, Snapshot, StringId};

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
pub(crate) fn finish(heap: Heap, builder: TableBuilder, root: Cell) -> Result<Snapshot, Refusal> {
    let mut finish = Finisher { heap, builder, pytorch: PyTorch::default(), order: Order::default() };
    finish.finish_root(root)?;
    Ok(finish.into_snapshot())
}

struct Finisher {
    heap: Heap,
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
            return Err(shape_error(
                "the top level",
                self.type_name(root),
                "a dictionary or a list of segments",
            ));
        }
        let items = remove_duplicates(self.heap.body(root));
        let pairs = items.as_chunks::<2>().0;
        let find = |key: Key| {
            pairs.iter().find(|pair| pair[0] == Cell::new(cell::STR, key.id().0.into())).map(|pair| pair[1])
        };
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
            let part =
                match (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten() {
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
                            let items = self.heap.body(annotation).to_vec();
                            self.builder.add_record(Table::Annotations, &mut self.heap, &items)?;
                        }
                        Part::Annotations
                    }
                    _ => Part::Value(self.builder.convert_value(&mut self.heap, value, 1)?),
                };
            let key = self.builder.convert_value(&mut self.heap, key, 1)?;
            self.pytorch.root.push((key, part));
        }
        Ok(())
    }

    /// Refuses a list of complete snapshots, such as the snapshots of all ranks. Read as a list of segments, it would
    /// look like an empty device.
    fn refuse_snapshots(&self, list: Cell) -> Result<(), Refusal> {
        let is_snapshot = |item: &Cell| {
            item.tag() == cell::DICT
                && matches!(self.heap.containers[item.row()].tag(), cell::BODY | cell::UNSET)
                && self.heap.body(*item).as_chunks::<2>().0.iter().any(|&[key, _]| {
                    [Key::Segments, Key::DeviceTraces]
                        .iter()
                        .any(|name| key == Cell::new(cell::STR, name.id().0.into()))
                })
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
        let plain = |item: &Cell| {
            item.tag() == cell::DICT
                && matches!(self.heap.containers[item.row()].tag(), cell::BODY | cell::UNSET | cell::EMPTY)
        };
        self.heap.containers[list.row()].tag() != cell::STACK && self.heap.body(list).iter().all(plain)
    }

    /// Returns the list at `path`. A tuple is converted to a list, because Python can iterate over either.
    fn convert_to_list(&mut self, list: Cell, path: &str) -> Result<Cell, Refusal> {
        match self.builder.as_list(&mut self.heap, list)? {
            Some(list) => Ok(list),
            None => Err(shape_error(path, self.type_name(list), "a list")),
        }
    }

    /// Returns the items of the list at `path`.
    fn list_items(&mut self, list: Cell, path: &str) -> Result<Vec<Cell>, Refusal> {
        let list = self.convert_to_list(list, path)?;
        self.items_of_list(list, path).map(<[Cell]>::to_vec)
    }

    /// Returns the items of a list without copying them.
    fn items_of_list(&self, list: Cell, path: &str) -> Result<&[Cell], Refusal> {
        match self.heap.containers[list.row()].tag() {
            cell::STACK if self.heap.containers[list.row()].payload() != 0 => {
                Err(shape_error(path, "a list of frames", "something else"))
            }
            _ => Ok(self.heap.body(list)),
        }
    }

    fn add_segments(&mut self, list: Cell, path: &str) -> Result<(), Refusal> {
        for (index, segment) in self.list_items(list, path)?.into_iter().enumerate() {
            let folded = (segment.tag() == cell::DICT).then(|| self.heap.containers[segment.row()].tag());
            if !matches!(folded, Some(cell::BODY | cell::UNSET | cell::EMPTY)) {
                let path = format!("{path}[{index}]");
                return Err(shape_error(&path, self.type_name(segment), "the dictionary of a segment"));
            }
            let items = self.heap.body(segment).to_vec();
            let row = self.builder.add_record(Table::Segments, &mut self.heap, &items)?;
            misplaced::check_segment(&self.builder.tables, row)
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
            let Some(&event) = self.heap.body(list).get(index) else { break };
            // A dictionary that has only one key or comes from a text protocol was not folded when it was filled.
            self.builder.settle_event(&mut self.heap, event)?;
            let folded = if event.tag() == cell::DICT { self.heap.containers[event.row()] } else { event };
            if folded.tag() != cell::EVENT {
                let found = if event.tag() == cell::DICT {
                    "a dictionary without `action`"
                } else {
                    self.type_name(event)
                };
                return Err(shape_error(&format!("{path}[{index}]"), found, "an event"));
            }
            if !self.builder.skips_events {
                misplaced::check_event(&self.builder.tables, folded.row())
                    .map_err(|found| found.into_refusal(&format!("{path}[{index}]")))?;
                self.order.push(folded.payload() as u32);
            }
        }
        Ok(())
    }

    fn type_name(&self, value: Cell) -> &'static str {
        match value.tag() {
            cell::NONE => "None",
            cell::TRUE | cell::FALSE => "a boolean",
            cell::INT | cell::WIDE | cell::BIG => "an integer",
            cell::FLOAT => "a float",
            cell::STR => "a string",
            cell::BYTES => "bytes",
            cell::PAIR | cell::TUPLE => "a tuple",
            cell::LIST => "a list",
            cell::DICT => "a dictionary",
            cell::SET | cell::FROZENSET => "a set",
            _ => "a class",
        }
    }

    fn into_snapshot(mut self) -> Snapshot {
        let [frames, events, segments, blocks, annotations] =
            std::mem::take(&mut self.builder.tables).map(|table| table.records);
        let mut table = std::mem::take(&mut self.builder.events);
        let mut pytorch = self.pytorch;
        // The rows are usually in the order of the traces already.
        if self.order.is_order_of_table(table.len()) {
            pytorch.events = events;
        } else {
            let rows = self.order.into_rows();
            pytorch.events = events.gather(&rows);
            table.pick(&rows);
        }
        for (device, rows) in pytorch.traces.iter().enumerate() {
            table.device[rows.clone()].fill(DeviceId(device as u16));
        }
        table.device[pytorch.host_trace.clone()].fill(DeviceId::HOST);
        for rows in pytorch.traces.iter().chain([&pytorch.host_trace]) {
            for row in rows.clone() {
                if !pytorch.events.has(row, Key::TimeUs) {
                    table.ticks[row] = (row - rows.start) as u64;
                }
            }
        }
        pytorch.segments = segments;
        pytorch.blocks = blocks;
        pytorch.annotations = annotations;
        let mut snapshot = Snapshot {
            meta: Meta { max_entries: u64::MAX, complete: true, ..Meta::default() },
            clock: build_clock(&table, &pytorch.events),
            events: table,
            strings: std::mem::take(&mut self.heap.strings.table),
            frames: FrameTable { records: frames, ..FrameTable::default() },
            named: std::mem::take(&mut self.builder.stacks.table),
            pytorch: Some(Box::new(pytorch)),
            ..Snapshot::default()
        };
        crate::pytorch::read::finish::state::fill(&mut snapshot);
        crate::pytorch::restore_settings(&mut snapshot);
        snapshot
    }
}

/// Returns a clock that ticks in microseconds and starts at the earliest event with a time.
fn build_clock(events: &EventTable, records: &Records) -> Clock {
    let timed = (0..events.len()).filter(|&row| records.has(row, Key::TimeUs));
    Clock::of_microseconds(timed.map(|row| events.ticks[row]).min().unwrap_or(0))
}

pub(super) fn shape_error(path: &str, found: &'static str, wanted: &'static str) -> Refusal {
    Refusal::Shape(LoadError::Shape { path: path.to_owned(), found, wanted })
}
