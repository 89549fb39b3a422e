//! Converts cells to [`Value`]s. Data without a column is kept in its Python form, and shared in the same way
//! as in the file.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::rows::{Table, TableBuilder};
use crate::pytorch::read::fold::shapes::remove_duplicates;
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::snapshot::pytorch::{Key, event_value_at as value_at};
use memtrack_model::snapshot::{FrameId, StringId, Value};
use std::sync::Arc;

/// The maximum nesting depth of containers.
pub(crate) const MAX_DEPTH: u32 = 500;

impl TableBuilder {
    /// Converts a cell at nesting level `depth`.
    pub(crate) fn convert_value(
        &mut self,
        heap: &mut Heap,
        value: Cell,
        depth: u32,
    ) -> Result<Value, PickleErrorKind> {
        Ok(match value.tag() {
            cell::NONE => Value::None,
            cell::FALSE => Value::Bool(false),
            cell::TRUE => Value::Bool(true),
            cell::INT => Value::Int(value.as_int()),
            cell::WIDE => Value::integer(heap.wide_of(value)),
            cell::BIG => Value::Big(heap.big_of(value).into()),
            cell::FLOAT => Value::Float(heap.float_of(value)),
            cell::STR => Value::Str(StringId(value.payload() as u32)),
            cell::BYTES => Value::Bytes(heap.bytes_of(value).into()),
            cell::PAIR => {
                let (first, second) = value.as_pair();
                Value::Tuple([Value::Int(first as i64), Value::Int(second as i64)].into())
            }
            cell::TUPLE | cell::LIST | cell::DICT | cell::SET | cell::FROZENSET => {
                return self.convert_container(heap, value, depth);
            }
            _ => return Err(PickleErrorKind::WrongType("plain data")),
        })
    }

    fn convert_container(
        &mut self,
        heap: &mut Heap,
        value: Cell,
        depth: u32,
    ) -> Result<Value, PickleErrorKind> {
        if depth >= MAX_DEPTH {
            return Err(PickleErrorKind::TooDeep(MAX_DEPTH));
        }
        if let Some(made) = self.converted.get(&value) {
            return made.clone().ok_or(PickleErrorKind::Cyclic);
        }
        self.settle(heap, value)?;
        let tag = value.tag();
        if tag == cell::LIST {
            self.fold_stack(heap, value)?;
        } else if tag != cell::TUPLE && heap.containers[value.row()] == Cell::UNSET {
            heap.containers[value.row()] = Cell::new(cell::EMPTY, 0);
        }
        if tag != cell::TUPLE {
            let folded = heap.containers[value.row()];
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
            cell::TUPLE => heap.tuple_items(value).to_vec(),
            cell::DICT => remove_duplicates(heap.body(value)),
            _ => heap.body(value).to_vec(),
        };
        if tag == cell::DICT {
            // A tuple is always allowed as the value of `frames`.
            let frames = Cell::new(cell::STR, Key::Frames.id().0.into());
            for [key, value] in items.as_chunks_mut::<2>().0 {
                if *key == frames && value.tag() == cell::TUPLE && self.fold_stack(heap, *value)?.is_some() {
                    *value = self.as_list(heap, *value)?.unwrap_or(*value);
                }
            }
        }
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.convert_value(heap, item, depth + 1)?);
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
}
