//! The tables of records while they are being filled. Records with the same keys in the same order share a shape. Most
//! values fit into a column; the others are kept exactly as they are in the file.

use crate::pickle::PickleErrorKind;
use crate::pytorch::intern::StackInterner;
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::heap::Heap;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::{ExactValue, Key, Kind, Records, Shape};
use memtrack_model::snapshot::{EventTable, FrameId, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The kinds of dictionaries that have a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    Frames,
    Events,
    Segments,
    Blocks,
    Annotations,
}

/// The values of a record until all of them are known. Values with a column are stored by key, and other values by
/// position.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    columns: Vec<(Key, u64)>,
    exact: Vec<(u16, Value)>,
}

/// The tables while they are being filled.
#[derive(Debug, Default)]
pub(crate) struct TableBuilder {
    pub(crate) heap: Heap,
    pub(crate) events: EventTable,
    pub(crate) tables: [RecordTable; 5],
    pub(crate) stacks: StackInterner,
    /// Loose stacks, which are lists of frames that have not been used yet. They have separate ids. The ids in
    /// [`Self::stacks`] are assigned in order of use, so that equal snapshots have equal ids no matter how they were
    /// written.
    pub(crate) loose: StackInterner,
    /// The id of each loose stack in [`Self::stacks`], or `NONE` until the stack is used.
    pub(crate) used_ids: Vec<StackId>,
    /// The rows of frames, keyed by the keys and values of the frames.
    pub(crate) frames: HashMap<Box<[Cell]>, u32, foldhash::fast::FixedState>,
    /// The values that containers were converted to. `None` means that the conversion is in progress.
    pub(crate) converted: HashMap<Cell, Option<Value>, foldhash::fast::FixedState>,
    /// The rows of blocks, keyed by the list that contained them.
    pub(crate) block_lists: HashMap<Cell, u64, foldhash::fast::FixedState>,
    /// For each tuple that was converted, the resulting list.
    pub(crate) tuple_lists: HashMap<Cell, Cell, foldhash::fast::FixedState>,
    /// The total number of blocks in repeated lists.
    pub(crate) repeated_blocks: u64,
    /// Whether a list may stand for a tuple, because the file is JSON, which has no tuples.
    pub(crate) lists_are_tuples: bool,
    /// Whether no dictionary is folded, because the file is not a snapshot.
    pub(crate) keeps_dictionaries: bool,
    /// Whether events are recognised but not kept.
    pub(crate) skips_events: bool,
    pub(crate) scratch_fields: Fields,
    pub(crate) scratch_cells: Vec<Cell>,
    pub(crate) scratch_frames: Vec<FrameId>,
}

impl TableBuilder {
    /// Appends a dictionary to a table and returns its row.
    pub(crate) fn add_record(&mut self, table: Table, items: &[Cell]) -> Result<usize, PickleErrorKind> {
        let (shape, items) = self.find_or_add_shape(table, items)?;
        let mut fields = Fields::default();
        for (place, pair) in items.as_chunks::<2>().0.iter().enumerate() {
            self.set_field(table, &mut fields, place, *pair)?;
        }
        Ok(self.append_record(table, shape, &mut fields))
    }

    /// Returns the number of a dictionary's shape, and the dictionary without repeated keys.
    pub(crate) fn find_or_add_shape<'a>(
        &mut self,
        table: Table,
        items: &'a [Cell],
    ) -> Result<(u32, Cow<'a, [Cell]>), PickleErrorKind> {
        if let Some(shape) = self.tables[table as usize].find(items) {
            return Ok((shape, items.into()));
        }
        let items = remove_duplicates(items);
        if let Some(shape) = self.tables[table as usize].find(&items) {
            return Ok((shape, items.into()));
        }
        let mut keys = Vec::with_capacity(items.len() / 2);
        for &key in items.iter().step_by(2) {
            keys.push(self.convert_value(key, 0)?);
        }
        Ok((self.tables[table as usize].add(&items, keys), items.into()))
    }

    /// Stores a value of a record: in its column if it fits there, or else as an exact value.
    pub(crate) fn set_field(
        &mut self,
        table: Table,
        fields: &mut Fields,
        place: usize,
        pair: [Cell; 2],
    ) -> Result<(), PickleErrorKind> {
        let [key, value] = pair;
        let Some(key) = key.as_key() else { return self.set_exact(fields, place, pair) };
        let tag = value.tag();
        let fits = match key.kind() {
            Kind::Unsigned => self.heap.as_unsigned(value),
            Kind::Signed if tag == cell::INT => Some(value.as_int() as u64),
            Kind::Flag if tag == cell::TRUE || tag == cell::FALSE => Some(u64::from(tag == cell::TRUE)),
            Kind::Text if tag == cell::STR => Some(value.payload()),
            Kind::Stack => self.fold_stack(value)?.map(|stack| stack.0.into()),
            Kind::Pool => self.pool_number(table, value),
            Kind::Rows if matches!(table, Table::Segments) => self.fold_blocks(value)?,
            _ => None,
        };
        if let Some(number) = fits {
            fields.columns.push((key, number));
            return Ok(());
        }
        if let (Kind::Unsigned, Some(near)) = (key.kind(), self.nearest_unsigned(key, value)) {
            fields.columns.push((key, near));
        }
        self.set_exact(fields, place, pair)
    }

    /// Stores a value of a record as an exact value instead of in a column.
    pub(crate) fn set_exact(
        &mut self,
        fields: &mut Fields,
        place: usize,
        [key, value]: [Cell; 2],
    ) -> Result<(), PickleErrorKind> {
        // PyTorch's Python code only iterates over a block's history, so a tuple is allowed here.
        let may_be_tuple = key == Cell::key(Key::History);
        let value = if may_be_tuple { self.as_list(value)?.unwrap_or(value) } else { value };
        let value = self.convert_value(value, 0)?;
        let place = u16::try_from(place)
            .map_err(|_| PickleErrorKind::TooLarge { what: "keys of one record", limit: u16::MAX.into() })?;
        fields.exact.push((place, value));
        Ok(())
    }

    /// Returns the number that a column stores for a value that it cannot represent exactly.
    pub(crate) fn nearest_unsigned(&self, key: Key, value: Cell) -> Option<u64> {
        match value.tag() {
            cell::TRUE => Some(1),
            // `as` drops the fraction and maps negative numbers and NaN to 0.
            cell::FLOAT => Some(self.heap.float_of(value) as u64),
            // PyTorch's C++ writer and memtrack write addresses and handles as signed integers, so only the bits
            // matter.
            cell::INT if is_handle(key) => Some(value.as_int() as u64),
            cell::WIDE if is_handle(key) => {
                i64::try_from(self.heap.wide_of(value)).ok().map(|signed| signed as u64)
            }
            _ => None,
        }
    }

    /// Appends a record to its table once all of its values are known. Records inside the values have already been
    /// appended.
    #[inline]
    pub(crate) fn append_record(&mut self, table: Table, shape: u32, fields: &mut Fields) -> usize {
        let records = &mut self.tables[table as usize].records;
        let row = records.push(shape);
        for (key, number) in fields.columns.drain(..) {
            records.set(row, key, number);
        }
        records.exact.extend(fields.exact.drain(..).map(|(place, value)| ExactValue {
            row: row as u32,
            place,
            value,
        }));
        row
    }

    /// Returns the number of a pool. A pool is a pair of integers, i.e. a tuple, or a list in JSON.
    fn pool_number(&mut self, table: Table, value: Cell) -> Option<u64> {
        let pair = match value.tag() {
            cell::PAIR => value.as_pair(),
            cell::LIST if self.lists_are_tuples && self.heap.body(value).len() == 2 => {
                let items = self.heap.body(value);
                Cell::pair(items[0], items[1])?.as_pair()
            }
            _ => return None,
        };
        self.tables[table as usize].records.pool_number(pair)
    }

    /// Returns the number of bytes of memory in use, including the heap.
    pub(crate) fn used_bytes(&self) -> u64 {
        let tables: u64 = self.tables.iter().map(|table| table.records.used_bytes()).sum();
        let indexes =
            self.frames.capacity() * 96 + self.converted.capacity() * 64 + self.tuple_lists.capacity() * 24;
        tables
            + self.heap.used_bytes()
            + self.stacks.used_bytes()
            + self.loose.used_bytes()
            + indexes as u64
            + 48 * self.events.ticks.capacity() as u64
    }
}

fn is_handle(key: Key) -> bool {
    matches!(key, Key::Addr | Key::Address | Key::Stream)
}

/// A table of records and an index of its shapes.
#[derive(Debug, Default)]
pub(crate) struct RecordTable {
    pub(crate) records: Records,
    /// The keys of each shape, as cells.
    keys: Vec<Box<[Cell]>>,
    index: HashMap<Box<[Cell]>, u32, foldhash::fast::FixedState>,
    /// The shape of the previous dictionary.
    last: usize,
}

impl RecordTable {
    /// Returns the shape of the previous dictionary if this one has the same shape and none of the keys in `barred`.
    #[inline]
    pub(crate) fn last_shape(&self, items: &[Cell], barred: u64) -> Option<u32> {
        let keys = self.keys.get(self.last)?;
        let same = keys.len() * 2 == items.len()
            && keys.iter().zip(items.as_chunks::<2>().0).all(|(known, pair)| *known == pair[0]);
        (same && !self.records.shapes[self.last].has_any(barred)).then_some(self.last as u32)
    }

    /// Returns the shape of the previous dictionary if these are its keys.
    pub(crate) fn last_shape_if(&self, keys: &[Cell]) -> Option<u32> {
        (*self.keys.get(self.last)?.as_ref() == *keys).then_some(self.last as u32)
    }

    /// Returns the shape of a dictionary that is given as alternating keys and values in `items`.
    #[inline]
    pub(crate) fn find(&mut self, items: &[Cell]) -> Option<u32> {
        if let Some(shape) = self.last_shape(items, 0) {
            return Some(shape);
        }
        let keys: Box<[Cell]> = items.iter().step_by(2).copied().collect();
        let found = *self.index.get(&keys)?;
        self.last = found as usize;
        Some(found)
    }

    /// Adds a shape. `keys` are its keys as values.
    pub(crate) fn add(&mut self, items: &[Cell], keys: Vec<Value>) -> u32 {
        let cells: Box<[Cell]> = items.iter().step_by(2).copied().collect();
        let number = self.records.shapes.len();
        self.records.shapes.push(Shape::new(keys));
        self.keys.push(cells.clone());
        self.index.insert(cells, number as u32);
        self.last = number;
        number as u32
    }
}

/// Removes repeated keys from a dictionary. As in Python, a key keeps its first position and its last value.
pub(crate) fn remove_duplicates(items: &[Cell]) -> Vec<Cell> {
    let pairs = items.as_chunks::<2>().0;
    let mut seen = HashSet::with_capacity(pairs.len());
    if pairs.iter().all(|pair| seen.insert(pair[0])) {
        return items.to_vec();
    }
    let mut positions: HashMap<Cell, usize> = HashMap::new();
    let mut kept: Vec<Cell> = Vec::with_capacity(items.len());
    for &[key, value] in pairs {
        match positions.get(&key) {
            Some(&position) => kept[position + 1] = value,
            None => {
                positions.insert(key, kept.len());
                kept.extend([key, value]);
            }
        }
    }
    kept
}
