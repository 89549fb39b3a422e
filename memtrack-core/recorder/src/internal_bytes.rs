//! The bytes that memtrack itself holds while it records. Code that keeps memory for long registers it here,
//! from any allocator; tables that grow by themselves are queried when the sum is needed.
//!
//! A forked child abandons most of it with its parent's tables; the part that it keeps has a separate sum.

use crate::events::ForkCell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bytes that a forked child abandons.
static OF_PROCESS: ForkCell<AtomicI64> = ForkCell::new(AtomicI64::default);
/// The bytes that it keeps. Not in a cell: the separate stacks of memtrack are counted here, which are made where
/// nothing can be allocated.
static INHERITED: AtomicI64 = AtomicI64::new(0);

/// Adds bytes that are held until the process becomes a forked child.
pub fn add(bytes: usize) {
    OF_PROCESS.get().fetch_add(bytes as i64, Ordering::Relaxed);
}

/// Subtracts bytes of those that are no longer held.
pub fn subtract(bytes: usize) {
    OF_PROCESS.get().fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// Adds bytes that are held in forked children, too.
pub(crate) fn add_inherited(bytes: usize) {
    INHERITED.fetch_add(bytes as i64, Ordering::Relaxed);
}

/// Subtracts bytes of those that are no longer held.
pub(crate) fn subtract_inherited(bytes: usize) {
    INHERITED.fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// Returns the bytes held now, except those of tables that know their own size.
pub(crate) fn total() -> i64 {
    OF_PROCESS.get().load(Ordering::Relaxed) + INHERITED.load(Ordering::Relaxed)
}
