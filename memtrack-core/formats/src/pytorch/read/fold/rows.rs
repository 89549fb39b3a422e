//! Folds a dictionary into a row of a table as soon as it is complete. The dictionary's keys identify its kind: one
//! with an `action` is an event, and one with a `filename` is a frame. Segments, blocks and annotations are few in
//! number and are folded by [`crate::pytorch::read::finish::finisher`].

use crate::pickle::PickleErrorKind;
use crate::pytorch::intern::StackInterner;
use crate::pytorch::read::fold::numbers::{exact_unsigned, nearest_unsigned};
use crate::pytorch::read::fold::repeated::{BlockLists, TupleLists};
use crate::pytorch::read::fold::shapes::{RecordTable, remove_duplicates};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::{ExactValue, Key, Kind};
use memtrack_model::snapshot::{EventTable, FrameId, StringId, Value};
use std::collections::HashMap;

/// The maximum number of entries in an event or a frame.
const MAX_ENTRIES: usize = 500;

/// A placeholder for events that are not kept.
pub(crate) const SKIPPED: Cell = Cell::new(cell::EVENT, 0);

const fn bit(key: Key) -> u64 {
    1 << key as u8
}

/// Keys of segments, blocks, annotations and the root. A dictionary that has one of these keys is neither an event nor
/// a frame, no matter which other keys it has.
const NOT_FOLDED: u64 = bit(Key::Blocks)
    | bit(Key::State)
    | bit(Key::TotalSize)
    | bit(Key::Stage)
    | bit(Key::Segments)
    | bit(Key::DeviceTraces);
/// Keys that frames do not have.
const NOT_IN_FRAMES: u64 = bit(Key::Size) | bit(Key::Address) | bit(Key::Frames);

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
    pub(crate) block_lists: BlockLists,
    pub(crate) tuple_lists: TupleLists,
    /// The total number of blocks in repeated lists.
    pub(crate) repeated_blocks: u64,
    /// Whether a list may stand for a tuple, because the file is JSON, which has no tuples.
    pub(crate) lists_are_tuples: bool,
    /// Whether events are recognised but not kept.
    pub(crate) skips_events: bool,
    pub(crate) scratch_fields: Fields,
    pub(crate) scratch_cells: Vec<Cell>,
    pub(crate) scratch_frames: Vec<FrameId>,
}

impl TableBuilder {
    /// Folds a dictionary, given as alternating keys and values in `items`. Returns `None` if it is neither an event
    /// nor a frame.
    #[inline]
    pub(crate) fn fold_dictionary(
        &mut self,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<Option<Cell>, PickleErrorKind> {
        if items.len() > 2 * MAX_ENTRIES {
            return Ok(None);
        }
        if let Some(shape) = self.tables[Table::Events as usize].last_shape(items, NOT_FOLDED)
            && !self.skips_events
        {
            return self.fold_event_of_shape(heap, shape, items).map(Some);
        }
        let mut seen = 0u64;
        for key in items.iter().step_by(2).filter(|key| key.tag() == cell::STR) {
            if let Some(key) = Key::of(StringId(key.payload() as u32)) {
                seen |= bit(key);
            }
        }
        if seen & NOT_FOLDED != 0 {
            return Ok(None);
        }
        if seen & bit(Key::Action) != 0 {
            return if self.skips_events {
                Ok(Some(SKIPPED))
            } else {
                self.fold_event(heap, items).map(Some)
            };
        }
        let named = bit(Key::Name) | bit(Key::Line);
        if seen & NOT_IN_FRAMES == 0 && (seen & bit(Key::Filename) != 0 || seen & named == named) {
            return self.fold_frame(heap, items).map(Some);
        }
        Ok(None)
    }

    /// Appends a dictionary to a table and returns its row.
    pub(crate) fn add_record(
        &mut self,
        table: Table,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<usize, PickleErrorKind> {
        let deduplicated;
        let (shape, items) = match self.find_or_add_shape(table, heap, items)? {
            Some(shape) => (shape, items),
            None => {
                deduplicated = remove_duplicates(items);
                let shape = self.find_or_add_shape(table, heap, &deduplicated)?;
                (shape.ok_or(PickleErrorKind::OddItems)?, &deduplicated[..])
            }
        };
        let mut fields = Fields::default();
        for (place, pair) in items.as_chunks::<2>().0.iter().enumerate() {
            self.set_field(table, heap, &mut fields, place, *pair)?;
        }
        Ok(self.append_record(table, shape, &mut fields))
    }

    /// Returns the number of a dictionary's shape, or `None` if a key occurs twice.
    pub(crate) fn find_or_add_shape(
        &mut self,
        table: Table,
        heap: &mut Heap,
        items: &[Cell],
    ) -> Result<Option<u32>, PickleErrorKind> {
        if let Some(shape) = self.tables[table as usize].find(items) {
            return Ok(Some(shape));
        }
        if remove_duplicates(items).len() != items.len() {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(items.len() / 2);
        for &key in items.iter().step_by(2) {
            keys.push(self.convert_value(heap, key, 0)?);
        }
        Ok(Some(self.tables[table as usize].add(items, keys)))
    }

    /// Stores a value of a record: in its column if it fits there, or else as an exact value.
    pub(crate) fn set_field(
        &mut self,
        table: Table,
        heap: &mut Heap,
        fields: &mut Fields,
        place: usize,
        pair: [Cell; 2],
    ) -> Result<(), PickleErrorKind> {
        let [key, value] = pair;
        let known = (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
        let Some(key) = known else { return self.set_exact(heap, fields, place, pair) };
        let tag = value.tag();
        let fits = match key.kind() {
            Kind::Unsigned => exact_unsigned(heap, value),
            Kind::Signed if tag == cell::INT => Some(value.as_int() as u64),
            Kind::Flag if tag == cell::TRUE || tag == cell::FALSE => Some(u64::from(tag == cell::TRUE)),
            Kind::Text if tag == cell::STR => Some(value.payload()),
            Kind::Stack => self.fold_stack(heap, value)?.map(|stack| stack.0.into()),
            Kind::Pool => self.pool_number(table, heap, value),
            Kind::Rows if matches!(table, Table::Segments) => self.fold_blocks(heap, value)?,
            _ => None,
        };
        if let Some(number) = fits {
            fields.columns.push((key, number));
            return Ok(());
        }
        if let (Kind::Unsigned, Some(near)) = (key.kind(), nearest_unsigned(heap, key, value)) {
            fields.columns.push((key, near));
        }
        self.set_exact(heap, fields, place, pair)
    }

    /// Stores a value of a record as an exact value instead of in a column.
    pub(crate) fn set_exact(
        &mut self,
        heap: &mut Heap,
        fields: &mut Fields,
        place: usize,
        [key, value]: [Cell; 2],
    ) -> Result<(), PickleErrorKind> {
        // PyTorch's Python code only iterates over a block's history, so a tuple is allowed here.
        let may_be_tuple = key == Cell::new(cell::STR, Key::History.id().0.into());
        let value = if may_be_tuple { self.as_list(heap, value)?.unwrap_or(value) } else { value };
        let value = self.convert_value(heap, value, 0)?;
        let place = u16::try_from(place)
            .map_err(|_| PickleErrorKind::TooLarge { what: "keys of one record", limit: u16::MAX.into() })?;
        fields.exact.push((place, value));
        Ok(())
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
    fn pool_number(&mut self, table: Table, heap: &Heap, value: Cell) -> Option<u64> {
        let pair = match value.tag() {
            cell::PAIR => value.as_pair(),
            cell::LIST if self.lists_are_tuples && heap.body(value).len() == 2 => {
                let items = heap.body(value);
                Cell::pair(items[0], items[1])?.as_pair()
            }
            _ => return None,
        };
        self.tables[table as usize].records.pool_number(pair)
    }

    /// Returns the number of bytes of memory in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        let tables: u64 = self.tables.iter().map(|table| table.records.used_bytes()).sum();
        let indexes =
            self.frames.capacity() * 96 + self.converted.capacity() * 64 + self.tuple_lists.capacity() * 24;
        tables
            + self.stacks.used_bytes()
            + self.loose.used_bytes()
            + indexes as u64
            + 48 * self.events.ticks.capacity() as u64
    }
}
