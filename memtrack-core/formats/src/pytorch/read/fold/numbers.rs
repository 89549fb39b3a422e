//! Determines the number that a column stores for a value: the value itself or the nearest number.

use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::heap::Heap;
use memtrack_model::snapshot::pytorch::Key;

/// Returns the number if a column can represent it exactly.
#[inline]
pub(crate) fn exact_unsigned(heap: &Heap, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::INT => u64::try_from(value.as_int()).ok(),
        cell::WIDE => u64::try_from(heap.wide_of(value)).ok(),
        _ => None,
    }
}

/// Returns the number that a column stores for a value that it cannot represent exactly.
pub(crate) fn nearest_unsigned(heap: &Heap, key: Key, value: Cell) -> Option<u64> {
    match value.tag() {
        cell::TRUE => Some(1),
        // `as` drops the fraction and maps negative numbers and NaN to 0.
        cell::FLOAT => Some(heap.float_of(value) as u64),
        // PyTorch's C++ writer and memtrack write addresses and handles as signed integers, so only the bits
        // matter.
        cell::INT if is_handle(key) => Some(value.as_int() as u64),
        cell::WIDE if is_handle(key) => i64::try_from(heap.wide_of(value)).ok().map(|signed| signed as u64),
        _ => None,
    }
}

fn is_handle(key: Key) -> bool {
    matches!(key, Key::Addr | Key::Address | Key::Stream)
}
