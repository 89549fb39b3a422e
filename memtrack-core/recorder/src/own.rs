//! What memtrack itself holds while it records, in bytes. Whoever keeps something that lasts says so here, whatever
//! allocator it comes from; tables that grow by themselves are asked for their room when somebody wants to know.
//!
//! A forked child leaves most of it behind with its parent's tables; what it goes on with has a sum of its own.

use crate::recorder::ForkCell;
use std::sync::atomic::{AtomicI64, Ordering};

/// What a forked child leaves behind.
static HELD: ForkCell<AtomicI64> = ForkCell::new(AtomicI64::default);
/// What it goes on with. No cell: stacks of memtrack's own are among it, which are made where nothing can be allocated.
static KEPT: AtomicI64 = AtomicI64::new(0);

/// So many more bytes are held from now on, until the process becomes a forked child.
pub fn hold(bytes: usize) {
    HELD.get().fetch_add(bytes as i64, Ordering::Relaxed);
}

/// So many bytes of those are held no longer.
pub fn release(bytes: usize) {
    HELD.get().fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// So many more bytes are held from now on, in forked children too.
pub(crate) fn keep(bytes: usize) {
    KEPT.fetch_add(bytes as i64, Ordering::Relaxed);
}

/// So many bytes of those are held no longer.
pub(crate) fn let_go(bytes: usize) {
    KEPT.fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// What is held now, but for tables that know their own size.
pub(crate) fn held() -> i64 {
    HELD.get().load(Ordering::Relaxed) + KEPT.load(Ordering::Relaxed)
}
