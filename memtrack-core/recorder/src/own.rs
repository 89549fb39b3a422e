//! What memtrack itself holds while it records, in bytes. Whoever keeps something that lasts says so here, whatever
//! allocator it comes from; tables that grow by themselves are asked for their room when somebody wants to know.

use std::sync::atomic::{AtomicI64, Ordering};

static HELD: AtomicI64 = AtomicI64::new(0);

/// So many more bytes are held from now on.
pub fn hold(bytes: usize) {
    HELD.fetch_add(bytes as i64, Ordering::Relaxed);
}

/// So many bytes are held no longer.
pub fn release(bytes: usize) {
    HELD.fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// What is held now, but for tables that know their own size.
pub(crate) fn held() -> i64 {
    HELD.load(Ordering::Relaxed)
}

/// In the child of a fork: all of it stays behind with the parent's tables.
pub(crate) fn reset_after_fork() {
    HELD.store(0, Ordering::Relaxed);
}
