//! Folds dictionaries that were filled piece by piece, and detects values that contain themselves. While the contents
//! of a container are taken out, the container counts as being converted, so a reference to it is reported as a cycle.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::rows::{SKIPPED, TableBuilder};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::Key;

impl TableBuilder {
    /// Folds a dictionary that was filled piece by piece, provided that it is an event or a frame.
    pub(crate) fn settle(&mut self, heap: &mut Heap, value: Cell) -> Result<(), PickleErrorKind> {
        if value.tag() != cell::DICT || heap.containers[value.row()].tag() != cell::BODY {
            return Ok(());
        }
        let items = heap.take_body(value);
        let before = self.converted.insert(value, None);
        let folded = self.fold_dictionary(heap, &items)?;
        self.restore(value, before);
        match folded {
            Some(folded) => heap.fold(value, folded, items),
            None => heap.put_back(value, items),
        }
        Ok(())
    }

    /// Folds a dictionary in a list of events into an event, if it has an `action`. Needed for pickles that fill the dictionary
    /// item by item, where it cannot be folded when it is created.
    pub(crate) fn settle_event(&mut self, heap: &mut Heap, value: Cell) -> Result<(), PickleErrorKind> {
        let action = Cell::new(cell::STR, Key::Action.id().0.into());
        if value.tag() == cell::DICT && heap.body(value).iter().step_by(2).any(|&key| key == action) {
            let items = heap.take_body(value);
            let before = self.converted.insert(value, None);
            let folded = if self.skips_events { SKIPPED } else { self.fold_event(heap, &items)? };
            self.restore(value, before);
            heap.fold(value, folded, items);
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
