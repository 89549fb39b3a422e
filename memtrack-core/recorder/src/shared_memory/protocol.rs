//! The steps in which a process and the command pass pages to each other. Model-checked with loom in `tests/loom`.
//!
//! A page belongs to the process from [`claim`] on, until it is full (events) or finished (the log); then it belongs to the
//! command until [`release`]. The content of a page up to its length is complete and does not change.

use super::sync::{AtomicU32, Ordering};

/// The state of a page that can be claimed.
pub(super) const PAGE_FREE: u32 = 0;
/// The state of a page that is in use.
pub(super) const PAGE_USED: u32 = 1;

/// Claims a page for the calling process; `false` if it is in use.
pub(super) fn claim(state: &AtomicU32) -> bool {
    state.load(Ordering::Relaxed) == PAGE_FREE
        && state.compare_exchange(PAGE_FREE, PAGE_USED, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Begins to use a claimed page, which has no content yet, for this `kind`.
pub(super) fn begin(kind: &AtomicU32, len: &AtomicU32, new_kind: u32) {
    len.store(0, Ordering::Relaxed);
    kind.store(new_kind, Ordering::Release);
}

/// Makes the content of a page visible up to a length.
pub(super) fn publish(len: &AtomicU32, new_len: u32) {
    len.store(new_len, Ordering::Release);
}

/// Returns the length up to which the content of a page is complete; `None` if the page is not used for
/// `expected_kind`.
pub(super) fn published(kind: &AtomicU32, len: &AtomicU32, expected_kind: u32) -> Option<u32> {
    (kind.load(Ordering::Acquire) == expected_kind).then(|| len.load(Ordering::Acquire))
}

/// Releases a page that the command has read completely, so that the process can use it again.
pub(super) fn release(state: &AtomicU32, kind: &AtomicU32, len: &AtomicU32) {
    kind.store(0, Ordering::Relaxed);
    len.store(0, Ordering::Relaxed);
    state.store(PAGE_FREE, Ordering::Release);
}
