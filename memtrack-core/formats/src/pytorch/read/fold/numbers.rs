//! What a column of numbers holds of a value: the number itself, or what comes nearest.

use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::snapshot::pytorch::Key;

/// The number, if a column holds it exactly.
#[inline]
pub(crate) fn unsigned(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::INT => u64::try_from(value.as_int()).ok(),
        cell::WIDE => u64::try_from(heap.wide_of(value)).ok(),
        _ => None,
    }
}

/// What a column holds of a number it cannot hold exactly.
pub(crate) fn nearest(heap: &Heap, key: Key, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::TRUE => Some(1),
        // `as` cuts the fraction, and takes what is negative or no number for 0.
        cell::FLOAT => Some(heap.float_of(value) as u64),
        // PyTorch's C++ writer and memtrack give addresses and handles a sign: the bits are the truth.
        cell::INT if is_handle(key) => Some(value.as_int() as u64),
        cell::WIDE if is_handle(key) => i64::try_from(heap.wide_of(value)).ok().map(|signed| signed as u64),
        _ => None,
    }
}

fn is_handle(key: Key) -> bool {
    matches!(key, Key::Addr | Key::Address | Key::Stream)
}
