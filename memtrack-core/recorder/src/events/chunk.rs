//! A chunk of events: one thread appends, any thread can read the events so far, and no thread waits. Each thread fills
//! its own chunk and passes it to the ring when it is full. Model-checked with loom in `tests/loom`.
#![allow(unsafe_code)]

use super::sync::{AtomicU32, Ordering, UnsafeCell, hold, release};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// A buffer for a fixed number of values, filled from the front by one thread.
///
/// Invariant: the slots below `len` were written before `len` was stored and are never written again.
pub(crate) struct Chunk<T> {
    len: NonNull<AtomicU32>,
    slots: NonNull<[UnsafeCell<MaybeUninit<T>>]>,
    /// Whether the memory is a page of shared memory, which the command frees, rather than heap memory.
    is_shared: bool,
}

// SAFETY: slots below `len` are only read, by any thread, after an acquiring load of `len`; the slot at `len` is
// accessed by the one appending thread alone (the contract of `push`).
unsafe impl<T: Copy + Send + Sync> Sync for Chunk<T> {}
// SAFETY: a chunk owns its events, or is the only chunk in its page.
unsafe impl<T: Copy + Send> Send for Chunk<T> {}

impl<T: Copy> Chunk<T> {
    /// Creates an empty chunk of `capacity` slots. The slots are not initialized, so their pages take memory only when
    /// events are appended.
    pub(crate) fn new(capacity: u32) -> Self {
        Self::on_heap(0, (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect())
    }

    fn on_heap(len: u32, slots: Box<[UnsafeCell<MaybeUninit<T>>]>) -> Self {
        hold(slots.len() * size_of::<T>());
        let len = NonNull::from(Box::leak(Box::new(AtomicU32::new(len))));
        Self { len, slots: NonNull::from(Box::leak(slots)), is_shared: false }
    }

    /// Creates an empty chunk in a page of shared memory, with its length at `len` and `capacity` slots at `slots`.
    ///
    /// # Safety
    /// The memory must be valid as long as the chunk exists, and this must be the only chunk in it.
    pub(crate) unsafe fn in_page(len: NonNull<AtomicU32>, slots: NonNull<T>, capacity: usize) -> Self {
        Self { len, slots: NonNull::slice_from_raw_parts(slots.cast(), capacity), is_shared: true }
    }

    #[inline(always)]
    fn length(&self) -> &AtomicU32 {
        // SAFETY: the pointer is valid as long as the chunk exists.
        unsafe { self.len.as_ref() }
    }

    #[inline(always)]
    fn slots(&self) -> &[UnsafeCell<MaybeUninit<T>>] {
        // SAFETY: the pointer is valid as long as the chunk exists, and the slots are changed only through their cells.
        unsafe { self.slots.as_ref() }
    }

    /// Creates a full chunk that contains these events.
    pub(crate) fn filled(events: Vec<T>) -> Self {
        let len = events.len() as u32;
        Self::on_heap(len, events.into_iter().map(|event| UnsafeCell::new(MaybeUninit::new(event))).collect())
    }

    /// Returns the number of events that the chunk can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots().len() as u32
    }

    /// Appends an event. Returns whether the chunk is full now, or `None` if it was already full. Once the chunk is full,
    /// this thread must not use it any more, because a page of shared memory might have been passed on.
    ///
    /// # Safety
    /// Only one thread at a time may call this for a chunk.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, event: T) -> Option<bool> {
        let len = self.length().load(Ordering::Relaxed);
        let slots = self.slots();
        let slot = slots.get(len as usize)?;
        // SAFETY: readers access only slots below `len`, and the caller is the only writer.
        slot.with_mut(|slot| unsafe {
            (*slot).write(event);
        });
        self.length().store(len + 1, Ordering::Release);
        Some(len as usize + 1 == slots.len())
    }

    /// Returns the number of events so far.
    pub(crate) fn len(&self) -> usize {
        self.length().load(Ordering::Acquire) as usize
    }

    /// Iterates over the events with these indices.
    ///
    /// # Panics
    /// Panics if `rows` reaches beyond the events appended so far.
    pub(crate) fn iter_rows(&self, rows: Range<usize>) -> impl DoubleEndedIterator<Item = T> {
        let written = &self.slots()[..self.len()];
        // SAFETY: these slots were written before the length that was just acquired, and are never written again.
        written[rows].iter().map(|slot| slot.with(|slot| unsafe { (*slot).assume_init() }))
    }

    /// Returns the number of events among the first `len` for which `is_before` returns true. If `is_before` returns true
    /// for an event, it must also return true for all earlier events.
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
        if self.is_shared {
            return;
        }
        // SAFETY: both pointers came from boxes, and nothing borrows from the chunk any more.
        unsafe {
            release(self.slots.as_ref().len() * size_of::<T>());
            drop((Box::from_raw(self.len.as_ptr()), Box::from_raw(self.slots.as_ptr())));
        }
    }
}
