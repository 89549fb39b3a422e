//! A chunk of events: one thread appends, any thread reads what is there, nobody waits. Each thread fills a chunk of its
//! own and hands it to the ring when it is full. Model-checked with loom in `tests/programs/loom`.
#![allow(unsafe_code)]

use super::sync::{AtomicU32, Ordering, UnsafeCell};

/// Room for a fixed number of `T`, filled from the front by one thread.
///
/// Invariant: the slots below `len` were written before `len` said so and are never written again.
pub(crate) struct Chunk<T> {
    len: AtomicU32,
    slots: Box<[UnsafeCell<Option<T>>]>,
}

// SAFETY: slots below `len` are only read, by any thread, after an acquiring load of `len`; the slot at `len` is touched
// by the one appending thread alone (the contract of `push`).
unsafe impl<T: Copy + Send + Sync> Sync for Chunk<T> {}
// SAFETY: a chunk owns its events.
unsafe impl<T: Copy + Send> Send for Chunk<T> {}

impl<T: Copy> Chunk<T> {
    /// An empty chunk of `capacity` slots.
    pub(crate) fn new(capacity: u32) -> Self {
        Self { len: AtomicU32::new(0), slots: (0..capacity).map(|_| UnsafeCell::new(None)).collect() }
    }

    /// How many it holds when full.
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
        // SAFETY: readers stay below `len`, and the caller is the only writer.
        slot.with_mut(|slot| unsafe { *slot = Some(event) });
        self.len.store(len + 1, Ordering::Release);
        true
    }

    /// Whether it has no room left.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) as usize == self.slots.len()
    }

    /// The events so far, in the order they were pushed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        let len = self.len.load(Ordering::Acquire) as usize;
        // SAFETY: these slots were written before the length that was just acquired, and nobody writes them again.
        self.slots[..len].iter().filter_map(|slot| slot.with(|slot| unsafe { *slot }))
    }
}
