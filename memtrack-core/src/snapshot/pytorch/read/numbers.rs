//! What a column of numbers holds of a value: the number itself, or what comes nearest.

use super::cell::{self, Cell};
use super::heap::Heap;

/// The number, if a column holds it exactly.
#[inline]
pub(super) fn unsigned(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::INT => u64::try_from(value.as_int()).ok(),
        cell::WIDE => u64::try_from(heap.wide_of(value)).ok(),
        _ => None,
    }
}

/// What a column holds of a number it cannot hold exactly.
pub(super) fn nearest(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::TRUE => Some(1),
        // `as` cuts the fraction, and takes what is negative or no number for 0.
        cell::FLOAT => Some(heap.float_of(value) as u64),
        _ => None,
    }
}
