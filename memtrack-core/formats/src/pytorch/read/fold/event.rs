//! Folds events. The data that every event has goes into the snapshot's own columns, and the rest into the
//! records.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::numbers::{exact_unsigned, nearest_unsigned};
use crate::pytorch::read::fold::rows::{Table, TableBuilder};
use crate::pytorch::read::fold::shapes::remove_duplicates;
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::event::Event;
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::action_of;

impl TableBuilder {
    /// Folds an event.
    pub(crate) fn fold_event(&mut self, heap: &mut Heap, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        const TABLE: Table = Table::Events;
        let deduplicated;
        let (shape, items) = match self.find_or_add_shape(TABLE, heap, items)? {
            Some(shape) => (shape, items),
            None => {
                deduplicated = remove_duplicates(items);
                let shape = self.find_or_add_shape(TABLE, heap, &deduplicated)?;
                (shape.ok_or(PickleErrorKind::OddItems)?, &deduplicated[..])
            }
        };
        self.fold_event_of_shape(heap, shape, items)
    }

    /// Folds an event of the given shape.
    pub(crate) fn fold_event_of_shape(
        &mut self,
        heap: &mut Heap,
        shape: u32,
        items: &[Cell],
    ) -> Result<Cell, PickleErrorKind> {
        const TABLE: Table = Table::Events;
        let has_address = self.tables[TABLE as usize].records.shapes[shape as usize].has(Key::Addr);
        let mut fields = std::mem::take(&mut self.scratch_fields);
        let mut event = Event::BLANK;
        for (place, &[key, value]) in items.as_chunks::<2>().0.iter().enumerate() {
            let known = (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
            let target = match known {
                Some(Key::Addr) => &mut event.address,
                Some(Key::DeviceFree) if !has_address => &mut event.address,
                Some(Key::Size) => &mut event.size_bytes,
                Some(Key::Stream) => &mut event.stream.0,
                Some(Key::TimeUs) => &mut event.ticks,
                Some(Key::Frames) => {
                    match self.fold_stack(heap, value)? {
                        Some(stack) => event.stack = stack,
                        None => self.set_exact(heap, &mut fields, place, [key, value])?,
                    }
                    continue;
                }
                Some(Key::Action) => {
                    let name = StringId(value.payload() as u32);
                    match (value.tag() == cell::STR).then(|| action_of(name)).flatten() {
                        Some(action) => event.action = action,
                        None => self.set_exact(heap, &mut fields, place, [key, value])?,
                    }
                    continue;
                }
                _ => {
                    self.set_field(TABLE, heap, &mut fields, place, [key, value])?;
                    continue;
                }
            };
            match exact_unsigned(heap, value) {
                Some(number) => *target = number,
                None => {
                    *target = known.and_then(|key| nearest_unsigned(heap, key, value)).unwrap_or(*target);
                    self.set_exact(heap, &mut fields, place, [key, value])?;
                }
            }
        }
        let row = self.append_record(TABLE, shape, &mut fields);
        self.scratch_fields = fields;
        self.events.push(&event);
        Ok(Cell::new(cell::EVENT, row as u64))
    }
}
