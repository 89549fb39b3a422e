//! A chunk of events: one thread appends, any thread can read the events so far, and no thread waits. Each thread fills
//! its own chunk and passes it to the ring when it is full. Model-checked with loom in `tests/loom`.
#![allow(unsafe_code)]

use super::sync::{AtomicU32, Ordering, UnsafeCell, hold, release};
use std::mem::MaybeUninit;
use std::ops::Range;

/// A buffer for a fixed number of values, filled from the front by one thread.
///
/// Invariant: the slots below `len` were written before `len` was stored and are never written again.
pub(crate) struct Chunk<T> {
    len: AtomicU32,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: slots below `len` are only read, by any thread, after an acquiring load of `len`; the slot at `len` is
// accessed by the one appending thread alone (the contract of `push`).
unsafe impl<T: Copy + Send + Sync> Sync for Chunk<T> {}
// SAFETY: a chunk owns its events.
unsafe impl<T: Copy + Send> Send for Chunk<T> {}

impl<T: Copy> Chunk<T> {
    /// Creates an empty chunk of `capacity` slots. The slots are not initialized, so their pages take memory only when
    /// events are appended.
    pub(crate) fn new(capacity: u32) -> Self {
        hold(capacity as usize * size_of::<T>());
        Self {
            len: AtomicU32::new(0),
            slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        }
    }

    /// Creates a full chunk that contains these events.
    pub(crate) fn filled(events: Vec<T>) -> Self {
        hold(events.len() * size_of::<T>());
        let len = AtomicU32::new(events.len() as u32);
        Self {
            len,
            slots: events.into_iter().map(|event| UnsafeCell::new(MaybeUninit::new(event))).collect(),
        }
    }

    /// Returns the number of events that the chunk can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Appends an event; `false` when the chunk is full.
    ///
    /// # Safety
    /// Only one thread at a time may call this for a chunk.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, event: T) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let Some(slot) = self.slots.get(len as usize) else { return false };
        // SAFETY: readers access only slots below `len`, and the caller is the only writer.
        slot.with_mut(|slot| unsafe {
            (*slot).write(event);
        });
        self.len.store(len + 1, Ordering::Release);
        true
    }

    /// Returns whether the chunk is full.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) as usize == self.slots.len()
    }

    /// Returns the number of events so far.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// Iterates over the events in these rows.
    ///
    /// # Panics
    /// Panics when there are fewer events so far.
    pub(crate) fn iter_rows(&self, rows: Range<usize>) -> impl DoubleEndedIterator<Item = T> {
        let written = &self.slots[..self.len()];
        // SAFETY: these slots were written before the length that was just acquired, and are never written again.
        written[rows].iter().map(|slot| slot.with(|slot| unsafe { (*slot).assume_init() }))
    }

    /// Returns the number of events among the first `len` for which `is_before` returns true. If it does for an event,
    /// it must for all earlier ones.
    pub(crate) fn partition_point(&self, len: usize, is_before: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.iter_rows(middle..middle + 1).next() {
                Some(event) if is_before(&event) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

impl<T> Drop for Chunk<T> {
    fn drop(&mut self) {
        release(self.slots.len() * size_of::<T>());
    }
}
