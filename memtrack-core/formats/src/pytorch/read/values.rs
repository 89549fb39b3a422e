//! Converts cells to [`Value`]s. Data without a column is kept in its Python form, and shared in the same way
//! as in the file. Lists that occur in several places are handled here as well. PyTorch's own files do not have them.
//! Each occurrence is just a reference in the file but takes as much memory as the list, so the number of repeated items
//! is limited.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::tables::{Table, TableBuilder, remove_duplicates};
use memtrack_model::snapshot::pytorch::{Key, event_value_at as value_at};
use memtrack_model::snapshot::{FrameId, StringId, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// The maximum nesting depth of containers.
pub(crate) const MAX_DEPTH: u32 = 500;

impl TableBuilder {
    /// Converts a cell at nesting level `depth`.
    pub(crate) fn convert_value(&mut self, value: Cell, depth: u32) -> Result<Value, PickleErrorKind> {
        Ok(match value.tag() {
            cell::NONE => Value::None,
            cell::FALSE => Value::Bool(false),
            cell::TRUE => Value::Bool(true),
            cell::INT => Value::Int(value.as_int()),
            cell::WIDE => Value::integer(self.heap.wide_of(value)),
            cell::BIG => Value::Big(self.heap.big_of(value).into()),
            cell::FLOAT => Value::Float(self.heap.float_of(value)),
            cell::STR => Value::Str(StringId(value.payload() as u32)),
            cell::BYTES => Value::Bytes(self.heap.bytes_of(value).into()),
            cell::PAIR => {
                let (first, second) = value.as_pair();
                Value::Tuple([Value::Int(first as i64), Value::Int(second as i64)].into())
            }
            cell::TUPLE | cell::LIST | cell::DICT | cell::SET | cell::FROZENSET => {
                return self.convert_container(value, depth);
            }
            _ => return Err(PickleErrorKind::WrongType("plain data")),
        })
    }

    fn convert_container(&mut self, value: Cell, depth: u32) -> Result<Value, PickleErrorKind> {
        if depth >= MAX_DEPTH {
            return Err(PickleErrorKind::TooDeep(MAX_DEPTH));
        }
        if let Some(made) = self.converted.get(&value) {
            return made.clone().ok_or(PickleErrorKind::Cyclic);
        }
        self.settle(value)?;
        let tag = value.tag();
        if tag == cell::LIST {
            self.fold_stack(value)?;
        } else if tag != cell::TUPLE && self.heap.containers[value.row()] == Cell::UNSET {
            self.heap.containers[value.row()] = Cell::new(cell::EMPTY, 0);
        }
        if tag != cell::TUPLE {
            let folded = self.heap.containers[value.row()];
            match folded.tag() {
                cell::STACK if folded.payload() == 0 => return Ok(Value::List([].into())),
                cell::STACK => return Ok(Value::Stack(folded.as_stack())),
                cell::FRAME => return Ok(Value::Frame(FrameId(folded.payload() as u32))),
                cell::EVENT if self.skips_events => return Ok(Value::Dict([].into())),
                cell::EVENT => {
                    let event = self.event_to_value(folded.row());
                    self.converted.insert(value, Some(event.clone()));
                    return Ok(event);
                }
                _ => {}
            }
        }
        self.converted.insert(value, None);
        let mut items = match tag {
            cell::TUPLE => self.heap.tuple_items(value).to_vec(),
            cell::DICT => remove_duplicates(self.heap.body(value)),
            _ => self.heap.body(value).to_vec(),
        };
        if tag == cell::DICT {
            // A tuple is always allowed as the value of `frames`.
            let frames = Cell::key(Key::Frames);
            for [key, value] in items.as_chunks_mut::<2>().0 {
                if *key == frames && value.tag() == cell::TUPLE && self.fold_stack(*value)?.is_some() {
                    *value = self.as_list(*value)?.unwrap_or(*value);
                }
            }
        }
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.convert_value(item, depth + 1)?);
        }
        let made = match tag {
            cell::TUPLE => Value::Tuple(values.into()),
            cell::LIST => Value::List(values.into()),
            cell::SET => Value::Set(values.into()),
            cell::FROZENSET => Value::FrozenSet(values.into()),
            _ => {
                let mut values = values.into_iter();
                let pairs = std::iter::from_fn(|| values.next().zip(values.next()));
                Value::Dict(pairs.collect::<Vec<_>>().into())
            }
        };
        self.converted.insert(value, Some(made.clone()));
        Ok(made)
    }

    /// Converts an event that does not belong to a trace.
    fn event_to_value(&self, row: usize) -> Value {
        let records = &self.tables[Table::Events as usize].records;
        let keys = &records.shape_of(row).keys;
        let entries = keys.iter().enumerate().map(|(place, key)| {
            (key.clone(), value_at(&self.events, records, row, place).unwrap_or(Value::None))
        });
        Value::Dict(Arc::from_iter(entries))
    }

    /// Returns a list as it is, or converts a tuple to a list, because Python can iterate over either. A tuple that
    /// occurs in several places becomes a single list. Returns `None` for other values.
    #[cold]
    pub(crate) fn as_list(&mut self, list: Cell) -> Result<Option<Cell>, PickleErrorKind> {
        match list.tag() {
            cell::LIST => return Ok(Some(list)),
            cell::TUPLE => {}
            _ => return Ok(None),
        }
        if let Some(&made) = self.tuple_lists.get(&list) {
            return Ok(Some(made));
        }
        let (made, items) = (self.heap.add_container(cell::LIST), self.heap.tuple_items(list).to_vec());
        self.heap.extend(made, &items)?;
        self.tuple_lists.insert(list, made);
        Ok(Some(made))
    }

    /// Returns the rows of a segment's blocks, packed as the value of [`Key::Blocks`], or `None` if `list` is not a
    /// list of blocks. If several segments share a list, its rows are stored only once.
    pub(crate) fn fold_blocks(&mut self, list: Cell) -> Result<Option<u64>, PickleErrorKind> {
        let Some(list) = self.as_list(list)? else { return Ok(None) };
        if let Some(&packed) = self.block_lists.get(&list) {
            self.repeated_blocks += packed & u64::from(u32::MAX);
            check_repeated(self.repeated_blocks, "blocks in lists that several segments share")?;
            return Ok(Some(packed));
        }
        let items = self.heap.body(list).to_vec();
        let folded_list = self.heap.containers[list.row()];
        if !items.iter().all(|&item| self.heap.is_plain_dictionary(item))
            || folded_list.tag() == cell::STACK && folded_list.payload() != 0
        {
            return Ok(None);
        }
        let start = self.tables[Table::Blocks as usize].records.len() as u64;
        for &block in &items {
            let entries = self.heap.body(block).to_vec();
            self.add_record(Table::Blocks, &entries)?;
        }
        let packed = start << 32 | items.len() as u64;
        self.block_lists.insert(list, packed);
        Ok(Some(packed))
    }
}

/// The maximum total number of items in repeated lists.
const MAX_REPEATED_ITEMS: u64 = 1 << 20;

fn check_repeated(items: u64, what: &'static str) -> Result<(), PickleErrorKind> {
    if items > MAX_REPEATED_ITEMS {
        Err(PickleErrorKind::TooLarge { what, limit: MAX_REPEATED_ITEMS })
    } else {
        Ok(())
    }
}

/// The traces so far, and the number of events in traces that were repeated.
#[derive(Default)]
pub(crate) struct RepeatedTraces {
    seen: HashSet<Cell>,
    items: u64,
}

impl RepeatedTraces {
    /// Adds a trace that has `items` events.
    pub(crate) fn add(&mut self, list: Cell, items: usize) -> Result<(), PickleErrorKind> {
        if !self.seen.insert(list) {
            self.items += items as u64;
        }
        check_repeated(self.items, "events in traces that several devices share")
    }
}
