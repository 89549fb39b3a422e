//! The recorder's protocols, under loom, which runs every schedule of two or three threads: a chunk that is read while it is
//! filled, the move of a full chunk to the ring, the stamps that order events of one address, and the pages and records that a
//! program shares with `memtrack run`. `chunk.rs`, `order.rs` and `protocol.rs` are the recorder's source files, with loom's
//! atomics and cells. The locks around them (a dashmap shard's and the store's) are plain loom locks here.
#![cfg(test)]
#![allow(dead_code, unsafe_code)]

/// Replaces `events::sync`.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

    /// Replaces the functions that count the recorder's bytes, which no model uses.
    pub(crate) fn hold(_bytes: usize) {}
    pub(crate) fn release(_bytes: usize) {}
}

#[path = "../../memtrack-core/recorder/src/events/chunk.rs"]
mod chunk;
#[path = "../../memtrack-core/recorder/src/events/order.rs"]
mod order;
#[path = "../../memtrack-core/recorder/src/shared_memory/protocol.rs"]
mod protocol;

mod tests {
    use super::chunk::Chunk;
    use super::order::stamp;
    use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Appends an event; each model below has one writer per chunk.
    fn push<T: Copy>(chunk: &Chunk<T>, event: T) -> Option<bool> {
        // SAFETY: each model below has one thread that pushes to a chunk.
        unsafe { chunk.push(event) }
    }

    #[test]
    fn a_concurrent_reader_sees_a_prefix() {
        loom::model(|| {
            let chunk = Arc::new(Chunk::new(3));
            let writer = thread::spawn({
                let chunk = Arc::clone(&chunk);
                move || {
                    for event in 0..3_u32 {
                        assert_eq!(push(&chunk, event), Some(event == 2));
                    }
                    assert_eq!(push(&chunk, 3), None);
                }
            });
            let first: Vec<_> = chunk.iter_rows(0..chunk.len()).collect();
            let second: Vec<_> = chunk.iter_rows(0..chunk.len()).collect();
            assert_eq!(first, (0..first.len() as u32).collect::<Vec<_>>());
            assert_eq!(second, (0..second.len() as u32).collect::<Vec<_>>());
            assert!(first.len() <= second.len(), "events never go away");
            writer.join().unwrap();
            assert_eq!(chunk.iter_rows(0..chunk.len()).collect::<Vec<_>>(), [0, 1, 2]);
        });
    }

    /// A model of `Slot::chunk` and `Store`: the chunk being filled, and the full ones behind a lock.
    struct Shared {
        slot: AtomicPtr<Chunk<u32>>,
        full: Mutex<Vec<std::sync::Arc<Chunk<u32>>>>,
    }

    impl Shared {
        /// Records an event as `Hook::event` and `Hook::hand_over` do: a full chunk moves into the ring, and the next
        /// one into the slot, while the store is locked.
        fn record(&self, event: u32) {
            let chunk = self.slot.load(Ordering::Relaxed);
            // SAFETY: only this thread takes a chunk out of the slot.
            match unsafe { chunk.as_ref() }.and_then(|chunk| push(chunk, event)) {
                Some(false) => {}
                Some(true) => self.hand_over(chunk),
                None => {
                    self.hand_over(chunk);
                    // SAFETY: `hand_over` stored a chunk in the slot.
                    assert!(push(unsafe { &*self.slot.load(Ordering::Relaxed) }, event).is_some());
                }
            }
        }

        fn hand_over(&self, old: *mut Chunk<u32>) {
            // SAFETY: a pointer in the slot came from `into_raw` below and becomes an `Arc` again once.
            let full = (!old.is_null()).then(|| unsafe { std::sync::Arc::from_raw(old.cast_const()) });
            let fresh = std::sync::Arc::into_raw(std::sync::Arc::new(Chunk::new(1))).cast_mut();
            let mut ring = self.full.lock().unwrap();
            self.slot.store(fresh, Ordering::Release);
            ring.extend(full);
        }

        /// Collects events as `Recorder::events_of` does: clones the ring's chunks under the lock and reads them after
        /// releasing it.
        fn collect(&self) -> Vec<u32> {
            let ring = self.full.lock().unwrap();
            let full: Vec<_> = ring.iter().map(std::sync::Arc::clone).collect();
            let mut newest = Vec::new();
            // SAFETY: the writer takes a chunk out of the slot only under the lock, which this thread holds.
            if let Some(chunk) = unsafe { self.slot.load(Ordering::Acquire).as_ref() } {
                newest.extend(chunk.iter_rows(0..chunk.len()));
            }
            drop(ring);
            full.iter()
                .flat_map(|chunk| chunk.iter_rows(0..chunk.len()).collect::<Vec<_>>())
                .chain(newest)
                .collect()
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            let last = self.slot.load(Ordering::Relaxed);
            if !last.is_null() {
                // SAFETY: as in `hand_over`.
                drop(unsafe { std::sync::Arc::from_raw(last.cast_const()) });
            }
        }
    }

    #[test]
    fn a_collector_sees_each_event_once_while_chunks_move_to_the_ring() {
        loom::model(|| {
            let shared =
                Arc::new(Shared { slot: AtomicPtr::new(std::ptr::null_mut()), full: Mutex::new(Vec::new()) });
            let writer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || (0..3).for_each(|event| shared.record(event))
            });
            let seen = shared.collect();
            assert_eq!(seen, (0..seen.len() as u32).collect::<Vec<_>>(), "each once, none missing");
            writer.join().unwrap();
            assert_eq!(shared.collect(), [0, 1, 2]);
        });
    }

    /// Clock readings of two processors, two each: the second processor's clock is ahead, behind or equal, or both jump back.
    const CLOCKS: [[u64; 4]; 4] = [[10, 11, 12, 13], [3, 2, 1, 0], [5, 5, 5, 5], [100, 0, 100, 0]];

    /// A model of `LiveTable`: the shard's lock guards its blocks and its newest stamp.
    #[derive(Default)]
    struct Shard {
        newest: u64,
        live: bool,
    }

    /// Records one thread's two events at an address: allocates the block if it is free, and frees it.
    fn use_block(
        shard: &Mutex<Shard>,
        free: &Mutex<bool>,
        log: &Mutex<Vec<(u64, bool)>>,
        clock: [u64; 2],
        newest_of_thread: &mut u64,
    ) {
        // Models the allocator's lock: the address is allocated only after it has been freed.
        if !std::mem::replace(&mut *free.lock().unwrap(), false) {
            return;
        }
        for (now, is_alloc) in clock.into_iter().zip([true, false]) {
            let ticks = {
                let mut shard = shard.lock().unwrap();
                assert_ne!(shard.live, is_alloc, "two live blocks at one address, or a free without a block");
                shard.live = is_alloc;
                shard.newest = stamp(now, shard.newest, *newest_of_thread);
                shard.newest
            };
            assert!(ticks > *newest_of_thread, "a thread's events keep their order");
            *newest_of_thread = ticks;
            // Events may be logged in any order after the lock is released: only their stamps matter.
            log.lock().unwrap().push((ticks, is_alloc));
        }
        *free.lock().unwrap() = true;
    }

    #[test]
    fn frees_are_stamped_after_their_allocs_when_two_threads_use_an_address() {
        for clocks in CLOCKS {
            for first in [0, 50] {
                loom::model(move || {
                    let shard = Arc::new(Mutex::new(Shard::default()));
                    let free = Arc::new(Mutex::new(true));
                    let log = Arc::new(Mutex::new(Vec::new()));
                    let other = thread::spawn({
                        let (shard, free, log) = (Arc::clone(&shard), Arc::clone(&free), Arc::clone(&log));
                        move || {
                            use_block(&shard, &free, &log, [clocks[2], clocks[3]], &mut { first });
                        }
                    });
                    use_block(&shard, &free, &log, [clocks[0], clocks[1]], &mut { 0 });
                    other.join().unwrap();
                    let mut log = log.lock().unwrap().clone();
                    log.sort_unstable();
                    for (index, pair) in log.windows(2).enumerate() {
                        assert!(pair[0].0 < pair[1].0, "stamps of one address differ");
                        assert_eq!(pair[0].1, index % 2 == 0);
                    }
                    assert!(!log.is_empty() && !log[log.len() - 1].1);
                });
            }
        }
    }

    #[test]
    fn a_block_freed_by_another_thread_is_stamped_in_order() {
        loom::model(|| {
            let shard = Arc::new(Mutex::new(Shard::default()));
            // The allocation's stamp, for comparison; 0 until the block is passed to the other thread.
            let passed = Arc::new(AtomicU64::new(0));
            let taker = thread::spawn({
                let (shard, passed) = (Arc::clone(&shard), Arc::clone(&passed));
                move || {
                    let alloc = passed.load(Ordering::Acquire);
                    if alloc != 0 {
                        let mut shard = shard.lock().unwrap();
                        // The clock of this processor is far behind.
                        shard.newest = stamp(1, shard.newest, 0);
                        assert!(shard.newest > alloc);
                    }
                }
            });
            let ticks = {
                let mut shard = shard.lock().unwrap();
                shard.newest = stamp(1000, shard.newest, 0);
                shard.newest
            };
            passed.store(ticks, Ordering::Release);
            taker.join().unwrap();
        });
    }
}

/// The pages and records that a program shares with the command.
mod shared_memory {
    use super::protocol::{begin, claim, publish, published, release};
    use super::sync::{AtomicU32, Ordering, UnsafeCell};
    use loom::sync::Arc;
    use loom::thread;

    const EVENTS: u32 = 1;
    const SLOTS: usize = 2;

    /// A page of two events.
    struct Page {
        state: AtomicU32,
        kind: AtomicU32,
        len: AtomicU32,
        slots: [UnsafeCell<u32>; SLOTS],
    }

    // SAFETY: the models check that only one thread at a time accesses a slot.
    unsafe impl Sync for Page {}
    // SAFETY: as above.
    unsafe impl Send for Page {}

    impl Page {
        fn new() -> Self {
            let zero = || AtomicU32::new(0);
            let slots = [UnsafeCell::new(0), UnsafeCell::new(0)];
            Self { state: zero(), kind: zero(), len: zero(), slots }
        }

        /// Writes an event, as a thread of the program does after claiming the page. Returns whether the page is now full; if
        /// it is, the thread must no longer use it.
        fn push(&self, event: u32) -> bool {
            let len = self.len.load(Ordering::Relaxed);
            // SAFETY: the model checks it.
            self.slots[len as usize].with_mut(|slot| unsafe { *slot = event });
            publish(&self.len, len + 1);
            len as usize + 1 == SLOTS
        }

        /// Reads the new events, as the command does, and releases the page if it is full. `read` is the number of events that
        /// were read before.
        fn drain(&self, read: &mut usize, events: &mut Vec<u32>) {
            let Some(len) = published(&self.kind, &self.len, EVENTS) else { return };
            for slot in &self.slots[*read..len as usize] {
                // SAFETY: the model checks it.
                events.push(slot.with(|slot| unsafe { *slot }));
            }
            *read = len as usize;
            if *read == SLOTS {
                *read = 0;
                release(&self.state, &self.kind, &self.len);
            }
        }
    }

    #[test]
    fn a_reused_page_loses_and_repeats_nothing() {
        loom::model(|| {
            let page = Arc::new(Page::new());
            let writer = thread::spawn({
                let page = Arc::clone(&page);
                move || {
                    let mut written = Vec::new();
                    let mut is_claimed = false;
                    for event in 1..=3 {
                        if !is_claimed {
                            is_claimed = claim(&page.state);
                            if is_claimed {
                                begin(&page.kind, &page.len, EVENTS);
                            }
                        }
                        // Without a page, the event is lost.
                        if is_claimed {
                            is_claimed = !page.push(event);
                            written.push(event);
                        }
                    }
                    written
                }
            });
            let (mut read, mut events) = (0, Vec::new());
            page.drain(&mut read, &mut events);
            page.drain(&mut read, &mut events);
            let written = writer.join().unwrap();
            page.drain(&mut read, &mut events);
            assert_eq!(events, written);
        });
    }

    /// A thread writes a stack to the log before another thread can use its number. The command reads the lengths of pages
    /// first, and the log afterwards.
    #[test]
    fn the_log_has_the_record_of_every_event() {
        loom::model(|| {
            let (log, stack) = (Arc::new(Page::new()), Arc::new(AtomicU32::new(0)));
            let page = Arc::new(Page::new());
            for page in [&log, &page] {
                assert!(claim(&page.state));
                begin(&page.kind, &page.len, EVENTS);
            }
            let first = thread::spawn({
                let (log, stack) = (Arc::clone(&log), Arc::clone(&stack));
                move || {
                    log.push(7);
                    stack.store(1, Ordering::Release);
                }
            });
            let second = thread::spawn({
                let (page, stack) = (Arc::clone(&page), Arc::clone(&stack));
                move || {
                    if stack.load(Ordering::Acquire) == 1 {
                        page.push(1);
                    }
                }
            });
            let (mut events, mut records) = (Vec::new(), Vec::new());
            page.drain(&mut 0, &mut events);
            log.drain(&mut 0, &mut records);
            assert!(events.is_empty() || records == [7], "{events:?} {records:?}");
            first.join().unwrap();
            second.join().unwrap();
        });
    }
}
