//! The values that the reader works with. They take eight bytes each, so that the memo and the stack stay small even
//! for large files. Numbers and short tuples are stored in the cell itself, and other data is in the
//! [`Heap`](super::heap::Heap).

use crate::pickle::Global;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::Key;

/// A value while a file is being read, consisting of a tag and 56 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell(u64);

macro_rules! tags {
    ($($name:ident = $number:literal),* $(,)?) => { $(pub(crate) const $name: u8 = $number;)* };
}

tags! {
    // No value, i.e. an unset memo slot or a container that is still empty.
    UNSET = 0,
    NONE = 1, FALSE = 2, TRUE = 3,
    // Integers that are in the cell, that have more than 56 bits, and that have more than 128 bits.
    INT = 4, WIDE = 5, BIG = 6,
    FLOAT = 7, STR = 8, BYTES = 9,
    // A tuple of two integers below 2^28, and any other tuple.
    PAIR = 10, TUPLE = 11,
    LIST = 12, DICT = 13, SET = 14, FROZENSET = 15,
    // A class.
    GLOBAL = 16,
    // The forms of lists and dictionaries that are not empty: contents on the heap, a stack, a frame, or an event.
    BODY = 17, STACK = 18, FRAME = 19, EVENT = 20,
    // A dictionary or set that was still empty when it was converted to a value, so it must stay empty.
    EMPTY = 21,
}

/// The flag that marks a loose stack, whose list has not been used yet and may still grow.
const LOOSE: u64 = 1 << 32;

/// The number of bits for each integer of a `PAIR`.
pub(crate) const PAIR_BITS: u32 = 28;
const PAYLOAD: u64 = (1 << 56) - 1;

impl Cell {
    pub(crate) const UNSET: Self = Self(0);
    pub(crate) const NONE: Self = Self::new(NONE, 0);

    #[inline]
    pub(crate) const fn new(tag: u8, payload: u64) -> Self {
        Self((tag as u64) << 56 | payload)
    }

    #[inline]
    pub(crate) const fn bool(truth: bool) -> Self {
        Self::new(if truth { TRUE } else { FALSE }, 0)
    }

    #[inline]
    pub(crate) const fn tag(self) -> u8 {
        (self.0 >> 56) as u8
    }

    #[inline]
    pub(crate) const fn payload(self) -> u64 {
        self.0 & PAYLOAD
    }

    /// Returns the payload as a table row.
    #[inline]
    pub(crate) const fn row(self) -> usize {
        self.payload() as usize
    }

    /// Returns the value that stands for a class.
    pub(crate) const fn global(global: Global) -> Self {
        Self::new(GLOBAL, global as u64)
    }

    /// Returns the name of the value's type for use in messages.
    pub(crate) fn type_name(self) -> &'static str {
        match self.tag() {
            NONE => "None",
            TRUE | FALSE => "a boolean",
            INT | WIDE | BIG => "an integer",
            FLOAT => "a float",
            STR => "a string",
            BYTES => "bytes",
            PAIR | TUPLE => "a tuple",
            LIST => "a list",
            DICT => "a dictionary",
            SET | FROZENSET => "a set",
            _ => "a class",
        }
    }

    /// Returns the string that is the name of a key.
    #[inline]
    pub(crate) fn key(key: Key) -> Self {
        Self::new(STR, key.id().0.into())
    }

    /// Returns the id of a string, or `None` for other values.
    #[inline]
    pub(crate) fn as_string(self) -> Option<StringId> {
        (self.tag() == STR).then(|| StringId(self.payload() as u32))
    }

    /// Returns the key whose name a string is, or `None` for other values.
    #[inline]
    pub(crate) fn as_key(self) -> Option<Key> {
        self.as_string().and_then(Key::of)
    }

    /// Returns the form of a list of frames that has not been used yet.
    #[inline]
    pub(crate) const fn loose_stack(stack: StackId) -> Self {
        Self::new(STACK, stack.0 as u64 | LOOSE)
    }

    /// Returns whether the cell is a stack whose list may still grow.
    #[inline]
    pub(crate) const fn is_loose_stack(self) -> bool {
        self.tag() == STACK && self.payload() & LOOSE != 0
    }

    /// Returns the stack that a `STACK` refers to.
    #[inline]
    pub(crate) const fn as_stack(self) -> StackId {
        StackId(self.payload() as u32)
    }

    /// Converts an integer if it fits.
    #[inline]
    pub(crate) const fn int(number: i64) -> Option<Self> {
        if number << 8 >> 8 == number { Some(Self::new(INT, number as u64 & PAYLOAD)) } else { None }
    }

    /// Returns the number in an `INT`.
    #[inline]
    pub(crate) const fn as_int(self) -> i64 {
        (self.0 << 8) as i64 >> 8
    }

    /// Converts a tuple if it consists of two small integers.
    #[inline]
    pub(crate) fn pair(first: Self, second: Self) -> Option<Self> {
        let small =
            |cell: Self| (cell.tag() == INT && cell.payload() < 1 << PAIR_BITS).then(|| cell.payload());
        Some(Self::new(PAIR, small(first)? << PAIR_BITS | small(second)?))
    }

    /// Returns the numbers in a `PAIR`.
    pub(crate) const fn as_pair(self) -> (u64, u64) {
        (self.payload() >> PAIR_BITS, self.payload() & ((1 << PAIR_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_pairs_round_trip() {
        for number in [0, 1, -1, (1 << 55) - 1, -(1 << 55)] {
            let cell = Cell::int(number).unwrap();
            assert_eq!((cell.tag(), cell.as_int()), (INT, number));
        }
        assert_eq!((Cell::int(1 << 55), Cell::int(i64::MIN)), (None, None));
        let (zero, seven) = (Cell::int(0).unwrap(), Cell::int(7).unwrap());
        assert_eq!(Cell::pair(zero, seven).unwrap().as_pair(), (0, 7));
        assert_eq!(Cell::pair(zero, Cell::int(-1).unwrap()), None);
        assert_eq!(Cell::pair(zero, Cell::int(1 << 28).unwrap()), None);
    }
}
