//! Counts of things of which there may be only a few at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A count with a bound.
#[derive(Debug)]
pub(super) struct Permits {
    used: AtomicUsize,
    most: usize,
}

/// One of the things that are counted. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Permits);

impl Permits {
    pub(super) const fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    /// Counts one more; `None` if there are too many. Never waits.
    pub(super) fn take(&self) -> Option<Permit<'_>> {
        let more = |used: usize| (used < self.most).then_some(used + 1);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        Some(Permit(self))
    }

    /// Returns the permit for something that was counted on another thread, where the permit was forgotten.
    pub(super) fn taken(&self) -> Permit<'_> {
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
    }
}
