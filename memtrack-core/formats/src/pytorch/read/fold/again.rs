//! Lists that occur in several places, which no file of PyTorch's has. A place takes a reference in the file, and in
//! memory as much as the list, so the number of repeated items is bounded.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::rows::{Folder, Table};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use std::collections::{HashMap, HashSet};

/// The most items of repeated lists.
const MAX_REPEATED_ITEMS: u64 = 1 << 20;

fn check_repeated(again: u64, what: &'static str) -> Result<(), PickleErrorKind> {
    if again > MAX_REPEATED_ITEMS {
        Err(PickleErrorKind::TooLarge { what, limit: MAX_REPEATED_ITEMS })
    } else {
        Ok(())
    }
}

/// The traces seen so far, and the number of events in repeated ones.
#[derive(Default)]
pub(crate) struct Again {
    seen: HashSet<Cell>,
    items: u64,
}

impl Again {
    /// Records a trace of `items` events.
    pub(crate) fn see(&mut self, list: Cell, items: usize) -> Result<(), PickleErrorKind> {
        if !self.seen.insert(list) {
            self.items += items as u64;
        }
        check_repeated(self.items, "events in traces that several devices share")
    }
}

/// The lists that tuples were converted to.
pub(crate) type Listed = HashMap<Cell, Cell, foldhash::fast::FixedState>;

/// The rows of blocks that were read, by their lists.
pub(crate) type BlockLists = HashMap<Cell, u64, foldhash::fast::FixedState>;

impl Folder {
    /// Returns the list of a list or tuple: Python iterates over both. A tuple that occurs in several places becomes
    /// one list. `None` for anything else.
    #[cold]
    pub(crate) fn listed(&mut self, heap: &mut Heap, list: Cell) -> Result<Option<Cell>, PickleErrorKind> {
        match list.tag() {
            cell::LIST => return Ok(Some(list)),
            cell::TUPLE => {}
            _ => return Ok(None),
        }
        if let Some(&made) = self.listed.get(&list) {
            return Ok(Some(made));
        }
        let (made, items) = (heap.container(cell::LIST), heap.tuple_items(list).to_vec());
        heap.extend(made, &items)?;
        self.listed.insert(list, made);
        Ok(Some(made))
    }

    /// Returns the blocks of a segment: their rows, as [`Key::Blocks`] packs them; `None` when it is not a list of
    /// blocks. A list that several segments share has its rows once.
    pub(crate) fn blocks(&mut self, heap: &mut Heap, list: Cell) -> Result<Option<u64>, PickleErrorKind> {
        let Some(list) = self.listed(heap, list)? else { return Ok(None) };
        if let Some(&packed) = self.block_lists.get(&list) {
            self.blocks_again += packed & u64::from(u32::MAX);
            check_repeated(self.blocks_again, "blocks in lists that several segments share")?;
            return Ok(Some(packed));
        }
        let items = heap.body(list).to_vec();
        let plain = |item: &Cell| {
            item.tag() == cell::DICT
                && matches!(heap.containers[item.row()].tag(), cell::BODY | cell::UNSET | cell::EMPTY)
        };
        let folded_list = heap.containers[list.row()];
        if !items.iter().all(plain) || folded_list.tag() == cell::STACK && folded_list.payload() != 0 {
            return Ok(None);
        }
        let start = self.sorts[Table::Blocks as usize].records.len() as u64;
        for &block in &items {
            let entries = heap.body(block).to_vec();
            self.record(Table::Blocks, heap, &entries)?;
        }
        let packed = start << 32 | items.len() as u64;
        self.block_lists.insert(list, packed);
        Ok(Some(packed))
    }
}
