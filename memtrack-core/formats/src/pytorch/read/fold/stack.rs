//! Folds frames, and folds lists of frames into stacks.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::rows::{Table, TableBuilder};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::FrameId;

impl TableBuilder {
    /// Folds a frame. Equal frames share a row.
    pub(crate) fn fold_frame(&mut self, heap: &mut Heap, items: &[Cell]) -> Result<Cell, PickleErrorKind> {
        let mut key = std::mem::take(&mut self.scratch_cells);
        key.clear();
        key.extend_from_slice(items);
        let row = match self.frames.get(&key[..]) {
            Some(&row) => row,
            None => {
                let row = self.add_record(Table::Frames, heap, items)? as u32;
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
    pub(crate) fn fold_stack(
        &mut self,
        heap: &mut Heap,
        mut list: Cell,
    ) -> Result<Option<StackId>, PickleErrorKind> {
        if list.tag() != cell::LIST {
            let Some(converted) = self.as_list(heap, list)? else { return Ok(None) };
            list = converted;
        }
        match heap.containers[list.row()].tag() {
            cell::STACK => {
                let folded = heap.containers[list.row()];
                let stack = if folded.is_loose_stack() {
                    self.use_loose_stack(folded.as_stack())
                } else {
                    folded.as_stack()
                };
                heap.containers[list.row()] = Cell::new(cell::STACK, stack.0.into());
                return Ok(Some(stack));
            }
            cell::UNSET => {
                // From now on, the list must stay empty.
                heap.containers[list.row()] = Cell::new(cell::STACK, 0);
                return Ok(Some(StackId::NONE));
            }
            _ => {}
        }
        let items = heap.take_body(list);
        let mut frames = std::mem::take(&mut self.scratch_frames);
        frames.clear();
        frames.reserve(items.len());
        for &item in &items {
            if item.tag() != cell::DICT {
                break;
            }
            let mut folded = heap.containers[item.row()];
            if folded.tag() != cell::FRAME {
                let before = self.converted.insert(list, None);
                self.settle(heap, item)?;
                self.restore(list, before);
                folded = heap.containers[item.row()];
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
            Some(stack) => heap.fold(list, Cell::new(cell::STACK, stack.0.into()), items),
            None => heap.put_back(list, items),
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
    pub(crate) fn unfold(&self, heap: &mut Heap, list: Cell) -> Result<(), PickleErrorKind> {
        let frames = self.loose.table.get(heap.containers[list.row()].as_stack());
        let mut items = Vec::with_capacity(frames.len());
        for frame in frames {
            let dict = heap.add_container(cell::DICT);
            heap.containers[dict.row()] = Cell::new(cell::FRAME, frame.0.into());
            items.push(dict);
        }
        heap.containers[list.row()] = Cell::UNSET;
        heap.extend(list, &items)
    }
}
