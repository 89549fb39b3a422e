//! The number of bytes that memtrack itself uses while it records. Code that keeps memory for a long time adds it here,
//! whichever allocator the memory is from; tables that grow automatically are queried when the sum is needed.
//!
//! A forked child abandons most of this memory with its parent's tables; the memory that it keeps has a separate sum.

use crate::events::ForkCell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bytes that a forked child abandons.
static NOT_INHERITED: ForkCell<AtomicI64> = ForkCell::new(AtomicI64::default);
/// The bytes that a forked child keeps. Not in a `ForkCell`, because it counts memtrack's separate stacks, which are
/// created where nothing can be allocated.
static INHERITED: AtomicI64 = AtomicI64::new(0);

/// Adds bytes that a forked child will abandon.
pub fn add(bytes: usize) {
    NOT_INHERITED.get().fetch_add(bytes as i64, Ordering::Relaxed);
}

/// Subtracts bytes that are no longer held.
pub fn subtract(bytes: usize) {
    NOT_INHERITED.get().fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// Adds bytes that forked children keep.
pub fn add_inherited(bytes: usize) {
    INHERITED.fetch_add(bytes as i64, Ordering::Relaxed);
}

/// Subtracts inherited bytes that are no longer held.
pub fn subtract_inherited(bytes: usize) {
    INHERITED.fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// Returns the number of bytes that are in use now, not counting the tables that can report their size.
pub(crate) fn total() -> i64 {
    NOT_INHERITED.get().load(Ordering::Relaxed) + INHERITED.load(Ordering::Relaxed)
}
