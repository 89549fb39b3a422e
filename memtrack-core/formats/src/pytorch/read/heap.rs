//! Storage for values that do not fit into a [`Cell`]. Each list or dictionary has a cell that holds its current form.
//! When a container is folded into a table, the memory of its contents is reused at once. The [`Memo`] holds the values
//! that a pickle refers to by number.

use crate::pickle::PickleErrorKind;
use crate::pickle::operand::Integer;
use crate::pytorch::StringInterner;
use crate::pytorch::read::cell::{self, Cell};

/// The tables that cells refer to.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    pub(crate) strings: StringInterner,
    wides: Vec<i128>,
    bigs: Vec<Vec<u8>>,
    floats: Vec<f64>,
    bytes: Vec<Vec<u8>>,
    items: Vec<Cell>,
    tuples: Vec<(u64, u64)>,
    /// The current forms of lists, dictionaries and sets, or `UNSET` while they are empty.
    pub(crate) containers: Vec<Cell>,
    bodies: Vec<Vec<Cell>>,
    free: Vec<u32>,
    /// The size of the data that [`Self::used_bytes`] cannot derive from the tables.
    counted_bytes: u64,
}

/// The maximum length of the contents that are kept for reuse, in cells.
const MAX_REUSED_CELLS: usize = 4096;

impl Heap {
    pub(crate) fn add_integer(&mut self, integer: Integer) -> Cell {
        match integer {
            Integer::Small(number) => self.add_int(number),
            Integer::Big(bytes) if bytes.len() <= 16 => {
                let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
                let mut wide = [if negative { 0xff } else { 0 }; 16];
                wide[..bytes.len()].copy_from_slice(&bytes);
                self.add_wide(i128::from_le_bytes(wide))
            }
            Integer::Big(bytes) => {
                self.counted_bytes += bytes.len() as u64;
                self.bigs.push(bytes);
                Cell::new(cell::BIG, self.bigs.len() as u64 - 1)
            }
        }
    }

    #[inline]
    pub(crate) fn add_int(&mut self, number: i64) -> Cell {
        Cell::int(number).unwrap_or_else(|| self.add_wide(number.into()))
    }

    fn add_wide(&mut self, number: i128) -> Cell {
        self.wides.push(number);
        Cell::new(cell::WIDE, self.wides.len() as u64 - 1)
    }

    pub(crate) fn add_float(&mut self, number: f64) -> Cell {
        self.floats.push(number);
        Cell::new(cell::FLOAT, self.floats.len() as u64 - 1)
    }

    pub(crate) fn add_raw(&mut self, bytes: Vec<u8>) -> Cell {
        self.counted_bytes += bytes.len() as u64;
        self.bytes.push(bytes);
        Cell::new(cell::BYTES, self.bytes.len() as u64 - 1)
    }

    #[inline]
    pub(crate) fn add_string(&mut self, text: &[u8]) -> Cell {
        Cell::new(cell::STR, self.strings.intern(text).0.into())
    }

    #[inline]
    pub(crate) fn build_tuple(&mut self, items: &[Cell]) -> Cell {
        if let &[first, second] = items
            && let Some(pair) = Cell::pair(first, second)
        {
            return pair;
        }
        let start = self.items.len() as u64;
        self.items.extend_from_slice(items);
        self.tuples.push((start, items.len() as u64));
        Cell::new(cell::TUPLE, self.tuples.len() as u64 - 1)
    }

    /// Creates an empty container with the given tag.
    #[inline]
    pub(crate) fn add_container(&mut self, tag: u8) -> Cell {
        self.containers.push(Cell::UNSET);
        Cell::new(tag, self.containers.len() as u64 - 1)
    }

    /// Appends items to a list, a set, or a dictionary. A dictionary's keys and values alternate.
    #[inline]
    pub(crate) fn extend(&mut self, container: Cell, items: &[Cell]) -> Result<(), PickleErrorKind> {
        let body = self.containers[container.row()];
        match body.tag() {
            cell::BODY => self.bodies[body.row()].extend_from_slice(items),
            cell::UNSET if items.is_empty() => {}
            cell::UNSET => {
                let row = self.free.pop().unwrap_or_else(|| {
                    self.bodies.push(Vec::new());
                    (self.bodies.len() - 1) as u32
                });
                self.bodies[row as usize].extend_from_slice(items);
                self.containers[container.row()] = Cell::new(cell::BODY, row.into());
            }
            _ => return Err(PickleErrorKind::Malformed("container: it is changed after it was used")),
        }
        self.counted_bytes += size_of_val(items) as u64;
        Ok(())
    }

    /// Returns the contents of a container. They are empty once the container has been folded.
    #[inline]
    pub(crate) fn body(&self, container: Cell) -> &[Cell] {
        let body = self.containers[container.row()];
        if body.tag() == cell::BODY { &self.bodies[body.row()] } else { &[] }
    }

    /// Takes the contents out of a container until [`Self::fold`] or [`Self::put_back`] is called.
    #[inline]
    pub(crate) fn take_body(&mut self, container: Cell) -> Vec<Cell> {
        let body = self.containers[container.row()];
        if body.tag() == cell::BODY { std::mem::take(&mut self.bodies[body.row()]) } else { Vec::new() }
    }

    pub(crate) fn put_back(&mut self, container: Cell, items: Vec<Cell>) {
        let body = self.containers[container.row()];
        if body.tag() == cell::BODY {
            self.bodies[body.row()] = items;
        }
    }

    /// Replaces a container with `folded` and frees its contents `items`, which had been taken out.
    #[inline]
    pub(crate) fn fold(&mut self, container: Cell, folded: Cell, mut items: Vec<Cell>) {
        let body = std::mem::replace(&mut self.containers[container.row()], folded);
        if body.tag() == cell::BODY {
            self.counted_bytes -= size_of_val(items.as_slice()) as u64;
            items.clear();
            if items.capacity() <= MAX_REUSED_CELLS {
                self.bodies[body.row()] = items;
            }
            self.free.push(body.payload() as u32);
        }
    }

    /// Returns the items of a tuple.
    pub(crate) fn tuple_items(&self, tuple: Cell) -> &[Cell] {
        let (start, length) = self.tuples[tuple.row()];
        &self.items[start as usize..(start + length) as usize]
    }

    /// Returns the items of a container. A dictionary's keys and values alternate.
    pub(crate) fn children(&self, value: Cell) -> &[Cell] {
        match value.tag() {
            cell::TUPLE => self.tuple_items(value),
            cell::LIST | cell::DICT | cell::SET | cell::FROZENSET => self.body(value),
            _ => &[],
        }
    }

    /// Returns a container's number, which is below [`Self::container_count`], or `None` for other values.
    pub(crate) fn container_number(&self, value: Cell) -> Option<usize> {
        match value.tag() {
            cell::TUPLE => Some(value.row()),
            cell::LIST | cell::DICT | cell::SET | cell::FROZENSET => Some(self.tuples.len() + value.row()),
            _ => None,
        }
    }

    /// Returns the number of tuples, lists, dictionaries and sets.
    pub(crate) fn container_count(&self) -> usize {
        self.tuples.len() + self.containers.len()
    }

    /// Returns an integer as a column stores it, or `None` if a column cannot represent the value exactly.
    #[inline]
    pub(crate) fn as_unsigned(&self, value: Cell) -> Option<u64> {
        match value.tag() {
            cell::INT => u64::try_from(value.as_int()).ok(),
            cell::WIDE => u64::try_from(self.wide_of(value)).ok(),
            _ => None,
        }
    }

    pub(crate) fn wide_of(&self, cell: Cell) -> i128 {
        self.wides[cell.row()]
    }

    pub(crate) fn big_of(&self, cell: Cell) -> &[u8] {
        &self.bigs[cell.row()]
    }

    pub(crate) fn float_of(&self, cell: Cell) -> f64 {
        self.floats[cell.row()]
    }

    pub(crate) fn bytes_of(&self, cell: Cell) -> &[u8] {
        &self.bytes[cell.row()]
    }

    /// Returns whether a value is a dictionary that has not been folded.
    pub(crate) fn is_plain_dictionary(&self, value: Cell) -> bool {
        value.tag() == cell::DICT
            && matches!(self.containers[value.row()].tag(), cell::BODY | cell::UNSET | cell::EMPTY)
    }

    /// Returns the number of bytes of memory in use, not counting unused capacity in contents.
    pub(crate) fn used_bytes(&self) -> u64 {
        let cells = self.items.capacity() + self.containers.capacity();
        let rest = self.bodies.capacity() * 24 + self.floats.capacity() * 8 + self.wides.capacity() * 16;
        let lists = (self.tuples.capacity() + self.bigs.capacity() + self.bytes.capacity()) * 24;
        (cells * 8 + rest + lists) as u64 + self.counted_bytes + self.strings.used_bytes()
    }
}

/// The slots of the memo.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    slots: Vec<Cell>,
    /// The number of slots that have been set. This is also the next slot that MEMOIZE fills.
    count: usize,
}

impl Memo {
    /// Returns the value in a slot, or `None` if it was never set.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<Cell> {
        self.slots.get(slot).copied().filter(|&value| value != Cell::UNSET)
    }

    /// Sets the next slot. Returns whether the slot already had a value.
    #[inline]
    pub(crate) fn append(&mut self, value: Cell) -> bool {
        self.set(self.count, value)
    }

    /// Sets a slot. Returns whether the slot already had a value, which does not happen in files from normal
    /// writers.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, value: Cell) -> bool {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Cell::UNSET);
        }
        let again = std::mem::replace(&mut self.slots[slot], value) != Cell::UNSET;
        self.count += usize::from(!again);
        again
    }

    /// Returns whether the next `slots` slots to be filled by MEMOIZE are empty.
    #[inline]
    pub(crate) fn has_room(&self, slots: usize) -> bool {
        let behind = self.slots.get(self.count..).unwrap_or_default();
        behind.iter().take(slots).all(|&value| value == Cell::UNSET)
    }

    /// Returns the number of bytes of memory in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        8 * self.slots.capacity() as u64
    }
}
