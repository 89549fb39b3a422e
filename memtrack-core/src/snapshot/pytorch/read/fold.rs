//! Folding: a dictionary becomes a row of a table as soon as it is filled. What a dictionary is, its keys say: one
//! with an `action` is an event, one with a `filename` a frame. Segments, blocks and annotations are few and are
//! folded by [`super::finish`].

use super::cell::{self, Cell};
use super::finish::BlockLists;
use super::heap::Heap;
use super::shapes::{Sort, without_duplicates};
use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use crate::pickle::PickleErrorKind;
use crate::snapshot::pytorch::intern::StackInterner;
use crate::snapshot::pytorch::key::action_of;
use crate::snapshot::pytorch::{Key, Kind, Odd};
use crate::snapshot::{EventTable, FrameId, StringId, Value};
use std::collections::HashMap;

/// A dictionary with more entries is no event and no frame.
const MAX_ENTRIES: usize = 500;

/// The sorts of dictionaries that have a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    Frames,
    Events,
    Segments,
    Blocks,
    Annotations,
}

/// The tables while they grow.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) events: EventTable,
    pub(super) sorts: [Sort; 5],
    pub(super) stacks: StackInterner,
    /// Frames by their shape and values.
    frames: HashMap<Box<[Cell]>, u32, foldhash::fast::FixedState>,
    /// Values made from containers, `None` while one is being made.
    pub(super) made: HashMap<Cell, Option<Value>, foldhash::fast::FixedState>,
    pub(super) block_lists: BlockLists,
    /// The file is JSON, which has no tuples.
    pub(super) lists_are_tuples: bool,
    scratch_cells: Vec<Cell>,
    scratch_frames: Vec<FrameId>,
}

impl Folder {
    /// For JSON, which has no tuples.
    pub(super) fn for_json() -> Self {
        Self { lists_are_tuples: true, ..Self::default() }
    }

    /// Folds a dictionary whose keys and values take turns in `items`; `None` when it is no event and no frame.
    #[inline]
    pub(super) fn dictionary(
        &mut self,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<Option<Cell>, PickleErrorKind> {
        if items.len() > 2 * MAX_ENTRIES {
            return Ok(None);
        }
        // One pass over the keys; a file's first key is mostly enough.
        let mut seen = 0u64;
        for key in items.iter().step_by(2).filter(|key| key.tag() == cell::STR) {
            match Key::of(StringId(key.payload() as u32)) {
                Some(Key::Action) => return self.event(heap, items).map(Some),
                Some(key) => seen |= 1 << key as u8,
                None => {}
            }
        }
        let has = |key: Key| seen >> key as u8 & 1 == 1;
        if has(Key::Filename) || has(Key::Name) && has(Key::Line) {
            return self.frame(heap, items).map(Some);
        }
        Ok(None)
    }

    /// Folds a dictionary that was filled piece by piece, if it is one to fold.
    pub(super) fn settle(&mut self, heap: &mut Heap, value: Cell) -> Result<(), PickleErrorKind> {
        if value.tag() != cell::DICT || heap.containers[value.row()].tag() != cell::BODY {
            return Ok(());
        }
        let items = heap.take_body(value);
        match self.dictionary(heap, &items)? {
            Some(folded) => heap.fold(value, folded, items),
            None => heap.put_back(value, items),
        }
        Ok(())
    }

    /// A frame, known or new.
    fn frame(&mut self, heap: &mut Heap, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        let mut key = std::mem::take(&mut self.scratch_cells);
        key.clear();
        key.extend_from_slice(items);
        let row = match self.frames.get(&key[..]) {
            Some(&row) => row,
            None => {
                let row = self.record(Table::Frames, heap, items)? as u32;
                self.frames.insert(key.clone().into(), row);
                row
            }
        };
        self.scratch_cells = key;
        Ok(Cell::new(cell::FRAME, row.into()))
    }

    /// The stack that a list of frames is; `None` when it is no list, or holds something else.
    #[inline]
    pub(super) fn stack(&mut self, heap: &mut Heap, list: Cell) -> Result<Option<StackId>, PickleErrorKind> {
        if list.tag() != cell::LIST {
            return Ok(None);
        }
        match heap.containers[list.row()].tag() {
            cell::STACK => return Ok(Some(StackId(heap.containers[list.row()].payload() as u32))),
            cell::UNSET => return Ok(Some(StackId::NONE)),
            _ => {}
        }
        let items = heap.take_body(list);
        let mut frames = std::mem::take(&mut self.scratch_frames);
        frames.clear();
        for &item in &items {
            if item.tag() != cell::DICT {
                break;
            }
            if heap.containers[item.row()].tag() == cell::BODY {
                self.settle(heap, item)?;
            }
            let folded = heap.containers[item.row()];
            if folded.tag() != cell::FRAME {
                break;
            }
            frames.push(FrameId(folded.payload() as u32));
        }
        let whole = frames.len() == items.len();
        let stack = whole.then(|| self.stacks.intern(&frames));
        self.scratch_frames = frames;
        match stack {
            Some(stack) => heap.fold(list, Cell::new(cell::STACK, stack.0.into()), items),
            None => heap.put_back(list, items),
        }
        Ok(stack)
    }

    /// Makes a row of a table from a dictionary.
    pub(super) fn record(
        &mut self,
        table: Table,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<usize, PickleErrorKind> {
        let deduplicated;
        let (shape, items) = match self.shape(table, heap, items)? {
            Some(shape) => (shape, items),
            None => {
                deduplicated = without_duplicates(items);
                let shape = self.shape(table, heap, &deduplicated)?;
                (shape.ok_or(PickleErrorKind::OddItems)?, &deduplicated[..])
            }
        };
        let row = self.sorts[table as usize].records.push(shape);
        for (place, pair) in items.as_chunks::<2>().0.iter().enumerate() {
            self.set(table, heap, row, place, *pair)?;
        }
        Ok(row)
    }

    /// The number of the shape that a dictionary has; `None` when a key is there twice.
    fn shape(
        &mut self,
        table: Table,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<Option<u32>, PickleErrorKind> {
        if let Some(shape) = self.sorts[table as usize].find(items) {
            return Ok(Some(shape));
        }
        if without_duplicates(items).len() != items.len() {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(items.len() / 2);
        for &key in items.iter().step_by(2) {
            keys.push(self.value(heap, key, 0)?);
        }
        Ok(Some(self.sorts[table as usize].add(items, keys)))
    }

    /// Sets one value of the last record of a table: in its column if it fits, beside it if not.
    fn set(
        &mut self,
        table: Table,
        heap: &mut Heap,
        row: usize,
        place: usize,
        [key, value]: [Cell; 2],
    ) -> Result<(), PickleErrorKind> {
        let known = (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
        let Some(key) = known else { return self.keep(table, heap, row, place, value) };
        let tag = value.tag();
        let fits = match key.kind() {
            Kind::Unsigned => unsigned(heap, value),
            Kind::Signed if tag == cell::INT => Some(value.as_int() as u64),
            Kind::Flag if tag == cell::TRUE || tag == cell::FALSE => Some(u64::from(tag == cell::TRUE)),
            Kind::Text if tag == cell::STR => Some(value.payload()),
            Kind::Stack => self.stack(heap, value)?.map(|stack| stack.0.into()),
            Kind::Pool => self.pool(table, heap, value),
            Kind::Rows => self.blocks(heap, value)?,
            _ => None,
        };
        let Some(number) = fits else {
            if let (Kind::Unsigned, Some(near)) = (key.kind(), nearest(heap, value)) {
                self.sorts[table as usize].records.set(row, key, near);
            }
            return self.keep(table, heap, row, place, value);
        };
        self.sorts[table as usize].records.set(row, key, number);
        Ok(())
    }

    /// Keeps a value beside its record.
    fn keep(
        &mut self,
        table: Table,
        heap: &mut Heap,
        row: usize,
        place: usize,
        value: Cell,
    ) -> Result<(), PickleErrorKind> {
        let value = self.value(heap, value, 0)?;
        let place = u16::try_from(place)
            .map_err(|_| PickleErrorKind::TooLarge { what: "keys of one record", limit: u16::MAX.into() })?;
        self.sorts[table as usize].records.odd.push(Odd { row: row as u32, place, value });
        Ok(())
    }

    /// A pair of integers: a tuple, or in JSON a list.
    fn pool(&mut self, table: Table, heap: &Heap, value: Cell) -> Option<u64> {
        let pair = match value.tag() {
            cell::PAIR => value.as_pair(),
            cell::LIST if self.lists_are_tuples && heap.body(value).len() == 2 => {
                let items = heap.body(value);
                Cell::pair(items[0], items[1])?.as_pair()
            }
            _ => return None,
        };
        self.sorts[table as usize].records.pool_number(pair)
    }

    /// An event.
    fn event(&mut self, heap: &mut Heap, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        const TABLE: Table = Table::Events;
        let deduplicated;
        let (shape, items) = match self.shape(TABLE, heap, items)? {
            Some(shape) => (shape, items),
            None => {
                deduplicated = without_duplicates(items);
                let shape = self.shape(TABLE, heap, &deduplicated)?;
                (shape.ok_or(PickleErrorKind::OddItems)?, &deduplicated[..])
            }
        };
        let sort = &mut self.sorts[TABLE as usize];
        let row = sort.records.push(shape);
        let has_address = sort.records.shapes[shape as usize].has(Key::Addr);
        let mut event = Event {
            ticks: row as u64,
            address: 0,
            size_bytes: 0,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            thread: ThreadId::NONE,
            device: DeviceId(0),
            action: Action::Other,
            flags: EventFlags(0),
        };
        for (place, &[key, value]) in items.as_chunks::<2>().0.iter().enumerate() {
            let known = (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
            let target = match known {
                Some(Key::Addr) => &mut event.address,
                Some(Key::DeviceFree) if !has_address => &mut event.address,
                Some(Key::Size) => &mut event.size_bytes,
                Some(Key::Stream) => &mut event.stream.0,
                Some(Key::TimeUs) => &mut event.ticks,
                Some(Key::Frames) => {
                    match self.stack(heap, value)? {
                        Some(stack) => event.stack = stack,
                        None => self.keep(TABLE, heap, row, place, value)?,
                    }
                    continue;
                }
                Some(Key::Action) => {
                    let name = StringId(value.payload() as u32);
                    match (value.tag() == cell::STR).then(|| action_of(name)).flatten() {
                        Some(action) => event.action = action,
                        None => self.keep(TABLE, heap, row, place, value)?,
                    }
                    continue;
                }
                _ => {
                    self.set(TABLE, heap, row, place, [key, value])?;
                    continue;
                }
            };
            match unsigned(heap, value) {
                Some(number) => *target = number,
                None => {
                    *target = nearest(heap, value).unwrap_or(*target);
                    self.keep(TABLE, heap, row, place, value)?;
                }
            }
        }
        self.events.push(&event);
        Ok(Cell::new(cell::EVENT, row as u64))
    }

    /// Bytes of memory in use.
    pub(super) fn used_bytes(&self) -> u64 {
        let tables: u64 = self.sorts.iter().map(|sort| sort.records.used_bytes()).sum();
        let indexes = self.frames.capacity() * 96 + self.made.capacity() * 64;
        tables + self.stacks.used_bytes() + indexes as u64 + 48 * self.events.ticks.capacity() as u64
    }
}

/// The number, if a column holds it exactly.
#[inline]
fn unsigned(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::INT => u64::try_from(value.as_int()).ok(),
        cell::WIDE => u64::try_from(heap.wide_of(value)).ok(),
        _ => None,
    }
}

/// What a column holds of a number it cannot hold exactly.
fn nearest(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::TRUE => Some(1),
        // `as` cuts the fraction, and takes what is negative or no number for 0.
        cell::FLOAT => Some(heap.float_of(value) as u64),
        _ => None,
    }
}
