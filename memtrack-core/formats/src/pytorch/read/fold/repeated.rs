//! Handles lists that occur in several places, which PyTorch's own files do not have. Each occurrence is just a
//! reference in the file but takes as much memory as the list, so the number of repeated items is limited.

use crate::pickle::PickleErrorKind;
use crate::pytorch::read::fold::rows::{Table, TableBuilder};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use std::collections::{HashMap, HashSet};

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

/// For each tuple that was converted, the resulting list.
pub(crate) type TupleLists = HashMap<Cell, Cell, foldhash::fast::FixedState>;

/// The rows of blocks, keyed by the list that contained them.
pub(crate) type BlockLists = HashMap<Cell, u64, foldhash::fast::FixedState>;

impl TableBuilder {
    /// Returns a list as it is, or converts a tuple to a list, because Python can iterate over either. A tuple that
    /// occurs in several places becomes a single list. Returns `None` for other values.
    #[cold]
    pub(crate) fn as_list(&mut self, heap: &mut Heap, list: Cell) -> Result<Option<Cell>, PickleErrorKind> {
        match list.tag() {
            cell::LIST => return Ok(Some(list)),
            cell::TUPLE => {}
            _ => return Ok(None),
        }
        if let Some(&made) = self.tuple_lists.get(&list) {
            return Ok(Some(made));
        }
        let (made, items) = (heap.add_container(cell::LIST), heap.tuple_items(list).to_vec());
        heap.extend(made, &items)?;
        self.tuple_lists.insert(list, made);
        Ok(Some(made))
    }

    /// Returns the rows of a segment's blocks, packed as the value of [`Key::Blocks`], or `None` if `list` is not a
    /// list of blocks. If several segments share a list, its rows are stored only once.
    pub(crate) fn fold_blocks(
        &mut self,
        heap: &mut Heap,
        list: Cell,
    ) -> Result<Option<u64>, PickleErrorKind> {
        let Some(list) = self.as_list(heap, list)? else { return Ok(None) };
        if let Some(&packed) = self.block_lists.get(&list) {
            self.repeated_blocks += packed & u64::from(u32::MAX);
            check_repeated(self.repeated_blocks, "blocks in lists that several segments share")?;
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
        let start = self.tables[Table::Blocks as usize].records.len() as u64;
        for &block in &items {
            let entries = heap.body(block).to_vec();
            self.add_record(Table::Blocks, heap, &entries)?;
        }
        let packed = start << 32 | items.len() as u64;
        self.block_lists.insert(list, packed);
        Ok(Some(packed))
    }
}
