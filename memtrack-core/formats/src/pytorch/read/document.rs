//! Reads a pickle of plain data that is not a snapshot, such as a tracker's statistics. The machine is the same, but no
//! dictionary is folded. The limit on memory is the same, too (`cost`).

pub use crate::InputState;
use crate::pickle::source::Source;
use crate::pickle::{PickleError, PickleErrorKind};
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::cost::CostMonitor;
use crate::pytorch::read::heap::Heap;
use crate::pytorch::read::machine::Machine;
use crate::pytorch::read::tables::TableBuilder;
use crate::pytorch::read::values::MAX_DEPTH;
use memtrack_model::text::decode_lossy;
use std::io::Read;

/// A pickle that has been read, consisting of its root and all values reachable from it. It contains no cycles, and at
/// most 500 levels, so code that traverses it may recurse.
#[derive(Debug)]
pub struct Document {
    heap: Heap,
    root: Cell,
}

/// A value in a [`Document`].
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    heap: &'a Heap,
    cell: Cell,
}

/// Reads a pickle of any protocol up to 5. Input after the pickle is ignored, although it may be consumed from the
/// reader. `stored` is the state of the file underlying `reader`: the more bytes have been read from it, the more
/// memory may be used. A class may occur only if it is a dictionary or `int`, and the only supported calls are those
/// that create an empty `defaultdict` or `OrderedDict`. Nothing is ever imported or called.
///
/// # Errors
/// Fails for anything but a valid pickle of plain data, for data that contains itself, and for data that takes too much
/// memory. The error gives the offset of the instruction.
pub fn load(reader: impl Read, stored: &InputState) -> Result<Document, PickleError> {
    let mut quiet = |_| {};
    let builder = TableBuilder { keeps_dictionaries: true, ..TableBuilder::default() };
    let mut machine = Machine::new(CostMonitor::new(u64::MAX, &stored.bytes, &mut quiet), builder);
    let failed = |(offset, kind)| PickleError { offset, kind };
    let root = machine.run(&mut Source::new(reader)).map_err(failed)?;
    check_nesting(&machine.builder.heap, root).map_err(|kind| failed((machine.at, kind)))?;
    Ok(Document { heap: machine.builder.heap, root })
}

impl Document {
    /// Returns the value of the entire pickle.
    pub fn root(&self) -> Value<'_> {
        Value { heap: &self.heap, cell: self.root }
    }
}

impl<'a> Value<'a> {
    /// Returns the name of the value's type for use in messages, such as `an integer` or `a list`.
    pub fn type_name(self) -> &'static str {
        self.cell.type_name()
    }

    /// Returns whether the value is `None`.
    pub fn is_none(self) -> bool {
        self.cell == Cell::NONE
    }

    /// Returns a boolean, or `None` for other types.
    pub fn as_bool(self) -> Option<bool> {
        match self.cell.tag() {
            cell::TRUE => Some(true),
            cell::FALSE => Some(false),
            _ => None,
        }
    }

    /// Returns the value as an integer. As in Python, booleans are 0 and 1. Returns `None` for other types and for
    /// integers that do not fit.
    pub fn as_i64(self) -> Option<i64> {
        match self.cell.tag() {
            cell::INT => Some(self.cell.as_int()),
            cell::WIDE => i64::try_from(self.heap.wide_of(self.cell)).ok(),
            _ => self.as_bool().map(i64::from),
        }
    }

    /// Returns a float, integer or boolean as a float. Big integers are rounded. Returns `None` for other types.
    pub fn as_f64(self) -> Option<f64> {
        match self.cell.tag() {
            cell::FLOAT => Some(self.heap.float_of(self.cell)),
            cell::WIDE => Some(self.heap.wide_of(self.cell) as f64),
            cell::BIG => {
                let (last, lower) = self.heap.big_of(self.cell).split_last()?;
                let top = f64::from(*last as i8);
                Some(lower.iter().rev().fold(top, |sum, &byte| sum * 256.0 + f64::from(byte)))
            }
            _ => self.as_i64().map(|number| number as f64),
        }
    }

    /// Returns the bytes of a string, which are UTF-8 that may contain lone surrogates. Returns `None` for other types.
    pub fn as_str_bytes(self) -> Option<&'a [u8]> {
        self.cell.as_string().map(|id| self.heap.strings.table.bytes(id))
    }

    /// Returns the contents of bytes or a bytearray, or `None` for other types.
    pub fn as_bytes(self) -> Option<&'a [u8]> {
        (self.cell.tag() == cell::BYTES).then(|| self.heap.bytes_of(self.cell))
    }

    /// Returns a string for display, or `None` for other types. Lone surrogates are replaced with U+FFFD.
    pub fn to_text(self) -> Option<String> {
        self.as_str_bytes().map(decode_lossy)
    }

    /// Returns the items of a tuple, or `None` for other types.
    pub fn as_tuple(self) -> Option<Vec<Self>> {
        match self.cell.tag() {
            cell::PAIR => {
                let (first, second) = self.cell.as_pair();
                Some([first, second].map(|number| self.sibling(Cell::new(cell::INT, number))).to_vec())
            }
            cell::TUPLE => Some(self.children().collect()),
            _ => None,
        }
    }

    /// Returns the items of a list, or `None` for other types.
    pub fn as_list(self) -> Option<Vec<Self>> {
        (self.cell.tag() == cell::LIST).then(|| self.children().collect())
    }

    /// Returns the keys and values of a dictionary in the order in which they were set, or `None` for other types. A key
    /// that was set twice occurs twice, and the last value is the valid one.
    pub fn as_entries(self) -> Option<Vec<(Self, Self)>> {
        let pairs = self.heap.children(self.cell).as_chunks::<2>().0;
        let entries = pairs.iter().map(|&[key, value]| (self.sibling(key), self.sibling(value)));
        (self.cell.tag() == cell::DICT).then(|| entries.collect())
    }

    /// Returns the value for a string key in a dictionary. If the key was set several times, the last value counts.
    /// Returns `None` without such a key, and for other types.
    pub fn get(self, key: &str) -> Option<Self> {
        let pairs = self.heap.children(self.cell).as_chunks::<2>().0;
        let is_key = |pair: &&[Cell; 2]| self.sibling(pair[0]).as_str_bytes() == Some(key.as_bytes());
        pairs.iter().rfind(is_key).filter(|_| self.cell.tag() == cell::DICT).map(|pair| self.sibling(pair[1]))
    }

    fn sibling(self, cell: Cell) -> Self {
        Self { heap: self.heap, cell }
    }

    fn children(self) -> impl Iterator<Item = Self> {
        self.heap.children(self.cell).iter().map(move |&cell| self.sibling(cell))
    }
}

/// The number of levels of a container that has not been entered yet.
const NEW: u32 = 0;
/// The number of levels of a container whose contents are being checked.
const OPEN: u32 = u32::MAX;

/// Checks that no value contains itself and that containers are not nested too deeply. The check takes one step per
/// value and does not recurse, no matter how deep or shared the values are.
fn check_nesting(heap: &Heap, root: Cell) -> Result<(), PickleErrorKind> {
    let Some(number) = heap.container_number(root) else { return Ok(()) };
    // Each entry is NEW, OPEN, or the number of levels in a finished container.
    let mut levels = vec![NEW; heap.container_count()];
    levels[number] = OPEN;
    // The open containers, each with the next child to visit and the number of levels found below the container so far.
    let mut path: Vec<(usize, &[Cell], u32)> = vec![(number, heap.children(root), 0)];
    while let Some((current, rest, deepest)) = path.last_mut() {
        let Some((&child, others)) = rest.split_first() else {
            let depth = *deepest + 1;
            levels[*current] = depth;
            path.pop();
            if let Some((_, _, deepest)) = path.last_mut() {
                *deepest = (*deepest).max(depth);
            }
            if path.len() as u64 + u64::from(depth) > MAX_DEPTH.into() {
                return Err(PickleErrorKind::TooDeep(MAX_DEPTH));
            }
            continue;
        };
        *rest = others;
        let Some(entered) = heap.container_number(child) else { continue };
        match levels[entered] {
            OPEN => return Err(PickleErrorKind::Cyclic),
            NEW => {
                levels[entered] = OPEN;
                path.push((entered, heap.children(child), 0));
            }
            depth => *deepest = (*deepest).max(depth),
        }
    }
    Ok(())
}
