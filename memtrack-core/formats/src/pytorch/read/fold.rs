//! Folds a dictionary into a row of a table as soon as it is complete. The dictionary's keys identify its kind: one
//! with an `action` is an event, and one with a `filename` is a frame. A list of frames is folded into a stack. The
//! data that every event has goes into the snapshot's own columns, and the rest into the records. Segments, blocks and
//! annotations are few in number and are folded at the end of the file.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::tables::{Table, TableBuilder};
use memtrack_model::event::{Event, StackId};
use memtrack_model::snapshot::pytorch::{Key, action_of};
use memtrack_model::snapshot::{FrameId, Value};

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

impl TableBuilder {
    /// Folds a dictionary, given as alternating keys and values in `items`. Returns `None` if it is neither an event
    /// nor a frame.
    #[inline]
    pub(crate) fn fold_dictionary(&mut self, items: &[Cell]) -> Result<Option<Cell>, PickleErrorKind> {
        if items.len() > 2 * MAX_ENTRIES || self.keeps_dictionaries {
            return Ok(None);
        }
        if let Some(shape) = self.tables[Table::Events as usize].last_shape(items, NOT_FOLDED)
            && !self.skips_events
        {
            return self.fold_event_of_shape(shape, items).map(Some);
        }
        let mut seen = 0u64;
        for key in items.iter().step_by(2) {
            if let Some(key) = key.as_key() {
                seen |= bit(key);
            }
        }
        if seen & NOT_FOLDED != 0 {
            return Ok(None);
        }
        if seen & bit(Key::Action) != 0 {
            return if self.skips_events { Ok(Some(SKIPPED)) } else { self.fold_event(items).map(Some) };
        }
        let named = bit(Key::Name) | bit(Key::Line);
        if seen & NOT_IN_FRAMES == 0 && (seen & bit(Key::Filename) != 0 || seen & named == named) {
            return self.fold_frame(items).map(Some);
        }
        Ok(None)
    }

    /// Folds an event.
    pub(crate) fn fold_event(&mut self, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        let (shape, items) = self.find_or_add_shape(Table::Events, items)?;
        self.fold_event_of_shape(shape, &items)
    }

    /// Folds an event of the given shape.
    pub(crate) fn fold_event_of_shape(
        &mut self,
        shape: u32,
        items: &[Cell],
    ) -> Result<Cell, PickleErrorKind> {
        const TABLE: Table = Table::Events;
        let has_address = self.tables[TABLE as usize].records.shapes[shape as usize].has(Key::Addr);
        let mut fields = std::mem::take(&mut self.scratch_fields);
        let mut event = Event::BLANK;
        for (place, &[key, value]) in items.as_chunks::<2>().0.iter().enumerate() {
            let known = key.as_key();
            let target = match known {
                Some(Key::Addr) => &mut event.address,
                Some(Key::DeviceFree) if !has_address => &mut event.address,
                Some(Key::Size) => &mut event.size_bytes,
                Some(Key::Stream) => &mut event.stream.0,
                Some(Key::TimeUs) => &mut event.ticks,
                Some(Key::Frames) => {
                    match self.fold_stack(value)? {
                        Some(stack) => event.stack = stack,
                        None => self.set_exact(&mut fields, place, [key, value])?,
                    }
                    continue;
                }
                Some(Key::Action) => {
                    match value.as_string().and_then(action_of) {
                        Some(action) => event.action = action,
                        None => self.set_exact(&mut fields, place, [key, value])?,
                    }
                    continue;
                }
                _ => {
                    self.set_field(TABLE, &mut fields, place, [key, value])?;
                    continue;
                }
            };
            match self.heap.as_unsigned(value) {
                Some(number) => *target = number,
                None => {
                    *target = known.and_then(|key| self.nearest_unsigned(key, value)).unwrap_or(*target);
                    self.set_exact(&mut fields, place, [key, value])?;
                }
            }
        }
        let row = self.append_record(TABLE, shape, &mut fields);
        self.scratch_fields = fields;
        self.events.push(&event);
        Ok(Cell::new(cell::EVENT, row as u64))
    }

    /// Folds a frame. Equal frames share a row.
    pub(crate) fn fold_frame(&mut self, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        let mut key = std::mem::take(&mut self.scratch_cells);
        key.clear();
        key.extend_from_slice(items);
        let row = match self.frames.get(&key[..]) {
            Some(&row) => row,
            None => {
                let row = self.add_record(Table::Frames, items)? as u32;
                self.frames.insert(key.clone().into(), row);
                row
            }
        };
        self.scratch_cells = key;
        Ok(Cell::new(cell::FRAME, row.into()))
    }

    /// Returns the stack for a list or tuple of frames. Returns `None` for other values, or if an item is not
    /// a frame.
    #[inline]
    pub(crate) fn fold_stack(&mut self, mut list: Cell) -> Result<Option<StackId>, PickleErrorKind> {
        if list.tag() != cell::LIST {
            let Some(converted) = self.as_list(list)? else { return Ok(None) };
            list = converted;
        }
        match self.heap.containers[list.row()].tag() {
            cell::STACK => {
                let folded = self.heap.containers[list.row()];
                let stack = if folded.is_loose_stack() {
                    self.use_loose_stack(folded.as_stack())
                } else {
                    folded.as_stack()
                };
                self.heap.containers[list.row()] = Cell::new(cell::STACK, stack.0.into());
                return Ok(Some(stack));
            }
            cell::UNSET => {
                // From now on, the list must stay empty.
                self.heap.containers[list.row()] = Cell::new(cell::STACK, 0);
                return Ok(Some(StackId::NONE));
            }
            _ => {}
        }
        let items = self.heap.take_body(list);
        let mut frames = std::mem::take(&mut self.scratch_frames);
        frames.clear();
        frames.reserve(items.len());
        for &item in &items {
            if item.tag() != cell::DICT {
                break;
            }
            let mut folded = self.heap.containers[item.row()];
            if folded.tag() != cell::FRAME {
                let before = self.converted.insert(list, None);
                self.settle(item)?;
                self.restore(list, before);
                folded = self.heap.containers[item.row()];
                if folded.tag() != cell::FRAME {
                    break;
                }
            }
            frames.push(FrameId(folded.payload() as u32));
        }
        let whole = frames.len() == items.len();
        let stack = whole.then(|| self.stacks.intern(&frames));
        self.scratch_frames = frames;
        match stack {
            Some(stack) => self.heap.fold(list, Cell::new(cell::STACK, stack.0.into()), items),
            None => self.heap.put_back(list, items),
        }
        Ok(stack)
    }

    /// Marks a loose stack as used, and returns its id in [`Self::stacks`].
    #[inline]
    pub(crate) fn use_loose_stack(&mut self, loose: StackId) -> StackId {
        if self.used_ids.len() <= loose.index() {
            self.used_ids.resize(loose.index() + 1, StackId::NONE);
        }
        if self.used_ids[loose.index()] == StackId::NONE {
            self.used_ids[loose.index()] = self.stacks.intern(self.loose.table.get(loose));
        }
        self.used_ids[loose.index()]
    }

    /// Turns a loose stack back into a list of frames.
    #[cold]
    pub(crate) fn unfold(&mut self, list: Cell) -> Result<(), PickleErrorKind> {
        let frames = self.loose.table.get(self.heap.containers[list.row()].as_stack());
        let mut items = Vec::with_capacity(frames.len());
        for frame in frames {
            let dict = self.heap.add_container(cell::DICT);
            self.heap.containers[dict.row()] = Cell::new(cell::FRAME, frame.0.into());
            items.push(dict);
        }
        self.heap.containers[list.row()] = Cell::UNSET;
        self.heap.extend(list, &items)
    }

    /// Folds a dictionary that was filled piece by piece, provided that it is an event or a frame.
    pub(crate) fn settle(&mut self, value: Cell) -> Result<(), PickleErrorKind> {
        if value.tag() != cell::DICT || self.heap.containers[value.row()].tag() != cell::BODY {
            return Ok(());
        }
        let items = self.heap.take_body(value);
        let before = self.converted.insert(value, None);
        let folded = self.fold_dictionary(&items)?;
        self.restore(value, before);
        match folded {
            Some(folded) => self.heap.fold(value, folded, items),
            None => self.heap.put_back(value, items),
        }
        Ok(())
    }

    /// Folds a dictionary in a list of events into an event, if it has an `action`. Needed for pickles that fill the dictionary
    /// item by item, where it cannot be folded when it is created.
    pub(crate) fn settle_event(&mut self, value: Cell) -> Result<(), PickleErrorKind> {
        let action = Cell::key(Key::Action);
        if value.tag() == cell::DICT && self.heap.body(value).iter().step_by(2).any(|&key| key == action) {
            let items = self.heap.take_body(value);
            let before = self.converted.insert(value, None);
            let folded = if self.skips_events { SKIPPED } else { self.fold_event(&items)? };
            self.restore(value, before);
            self.heap.fold(value, folded, items);
        }
        Ok(())
    }

    /// Records that a container's contents are no longer taken out. While they were, a reference to the container would
    /// have been a cycle.
    pub(crate) fn restore(&mut self, container: Cell, before: Option<Option<Value>>) {
        match before {
            Some(before) => self.converted.insert(container, before),
            None => self.converted.remove(&container),
        };
    }
}
