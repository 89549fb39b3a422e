//! Events as PyTorch's dictionaries. The columns that every event has are in the snapshot's [`EventTable`]. Everything
//! else that PyTorch's files contain is in a [`Records`] beside it, row by row.

use super::key::{Key, id_of};
use super::records::{Records, known};
use crate::event::StackId;
use crate::snapshot::{EventTable, Value};

/// Returns the exact value at a position in an event's shape.
pub fn value_at(events: &EventTable, details: &Records, row: usize, place: usize) -> Option<Value> {
    if let Some(exact) = details.exact_at(row, place) {
        return Some(exact.clone());
    }
    let number = |number: u64| Some(Value::integer(number.into()));
    let shape = details.shape_of(row);
    match known(shape.keys.get(place)?) {
        // If an event has both keys, `device_free` has its own column.
        Some(Key::DeviceFree) if shape.has(Key::Addr) => details.value_at(row, place),
        Some(Key::Addr | Key::DeviceFree) => number(events.address[row]),
        Some(Key::Size) => number(events.size_bytes[row]),
        Some(Key::Stream) => number(events.stream[row].0),
        Some(Key::TimeUs) => number(events.ticks[row]),
        Some(Key::Action) => Some(Value::Str(id_of(events.action[row]))),
        Some(Key::Frames) => Some(match events.stack[row] {
            StackId::NONE => Value::List([].into()),
            stack => Value::Stack(stack),
        }),
        _ => details.value_at(row, place),
    }
}
