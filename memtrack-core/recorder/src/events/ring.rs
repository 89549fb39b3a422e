//! The ring of full chunks, one per device. It keeps the newest `max_entries` events in merge order and at most one
//! more chunk: a chunk is dropped once chunks that begin after its end contain `max_entries` events. A snapshot makes
//! the result exact: it sorts the remaining events and takes the newest.

use super::chunk::Chunk;
use super::filling::FIRST_CHUNK_EVENTS;
use crate::settings;
use memtrack_model::event::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of events in a chunk.
pub(crate) const CHUNK_EVENTS: u32 = 4096;

struct FullChunk {
    first_ticks: u64,
    last_ticks: u64,
    /// The number of events that belong to the running session. The first events of the chunk may be older.
    counted: u64,
    events: Arc<Chunk<Event>>,
}

/// The full chunks of a device, ordered by their last stamps.
#[derive(Default)]
pub(crate) struct Ring {
    chunks: VecDeque<FullChunk>,
    len: u64,
    evicted: u64,
}

/// Chunks removed from a ring, to be freed after its lock is released.
pub(crate) struct DroppedChunks(Vec<Arc<Chunk<Event>>>);

impl DroppedChunks {
    /// The maximum number of chunks dropped at once: as many of the smallest chunks as a large one replaces. If more must
    /// be dropped, because none were dropped while a snapshot was taken, the rest are dropped when the next chunk is added.
    const MAX_CHUNKS: usize = (CHUNK_EVENTS / FIRST_CHUNK_EVENTS) as usize + 1;

    /// Allocates the memory for the list; called before the ring is locked.
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(Self::MAX_CHUNKS))
    }

    fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }
}

/// A larger buffer to replace a ring's buffer, allocated while the ring is not locked.
pub(crate) struct RingMemory(VecDeque<FullChunk>);

impl Ring {
    /// Returns the number of chunks.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the capacity to grow to if the ring is full; `None` if there is room for another chunk.
    pub(crate) fn needed_capacity(&self) -> Option<usize> {
        (self.chunks.len() == self.chunks.capacity()).then(|| (2 * self.chunks.len()).max(16))
    }

    /// Allocates memory for this number of chunks.
    pub(crate) fn allocate(chunks: usize) -> RingMemory {
        RingMemory(VecDeque::with_capacity(chunks))
    }

    /// Moves the chunks to `memory` if that is larger. Afterwards `memory` is the memory to free.
    pub(crate) fn grow(&mut self, memory: &mut RingMemory) {
        if memory.0.capacity() > self.chunks.capacity() {
            std::mem::swap(&mut self.chunks, &mut memory.0);
            self.chunks.extend(memory.0.drain(..));
        }
    }

    /// Adds a full chunk. The ring must have room for it. Its events before the tick `since` are not counted. Moves the
    /// chunks beyond the bound to `dropped`.
    pub(crate) fn push(
        &mut self,
        chunk: Arc<Chunk<Event>>,
        since: u64,
        max_entries: u64,
        dropped: &mut DroppedChunks,
    ) {
        // The stamps of a thread only increase.
        let len = chunk.len();
        let stamp = |row: usize| chunk.iter_rows(row..row + 1).next().map(|event| event.ticks);
        let Some((first_ticks, last_ticks)) = len.checked_sub(1).and_then(|last| stamp(0).zip(stamp(last)))
        else {
            return;
        };
        let from = chunk.partition_point(len, |event| event.ticks < since);
        let counted = if settings::skips_any() {
            chunk.iter_rows(from..len).filter(|event| settings::is_wanted(event.action)).count()
        } else {
            len - from
        } as u64;
        self.len += u64::from(chunk.capacity());
        let full = FullChunk { first_ticks, last_ticks, counted, events: chunk };
        let place = self.chunks.partition_point(|other| other.last_ticks <= last_ticks);
        self.chunks.insert(place, full);
        self.evict(max_entries, dropped);
    }

    fn evict(&mut self, max_entries: u64, dropped: &mut DroppedChunks) {
        while !dropped.is_full()
            && let Some(oldest) = self.chunks.front()
        {
            let oldest_len = u64::from(oldest.events.capacity());
            if self.len - oldest_len < max_entries {
                break;
            }
            let newer = self.chunks.iter().filter(|chunk| chunk.first_ticks > oldest.last_ticks);
            if newer.map(|chunk| u64::from(chunk.events.capacity())).sum::<u64>() < max_entries {
                break;
            }
            self.len -= oldest_len;
            self.evicted += oldest.counted;
            dropped.0.extend(self.chunks.pop_front().map(|oldest| oldest.events));
        }
    }

    /// Returns the chunks, for a reader that copies their events after the lock is released.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Arc<Chunk<Event>>> {
        self.chunks.iter().map(|full| Arc::clone(&full.events))
    }

    /// Returns the number of events that were dropped because of the bound.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Removes and returns all chunks.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<Chunk<Event>>> {
        self.len = 0;
        self.chunks.drain(..).map(|full| full.events)
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::{Run, newest};
    use super::*;
    use memtrack_model::event::{Action, DeviceId, EventFlags, ScopeId, StackId, StreamId, ThreadId};

    fn chunk(ticks: &[u64]) -> Arc<Chunk<Event>> {
        let chunk = Chunk::new(ticks.len() as u32);
        for &ticks in ticks {
            assert!(push(&chunk, ticks));
        }
        Arc::new(chunk)
    }

    #[allow(unsafe_code)]
    fn push(chunk: &Chunk<Event>, ticks: u64) -> bool {
        let event = Event {
            ticks,
            address: 0,
            size_bytes: 1,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            thread: ThreadId(1),
            device: DeviceId::HOST,
            action: Action::Alloc,
            flags: EventFlags::default(),
        };
        // SAFETY: this thread is the only writer of the test's chunk.
        unsafe { chunk.push(event).is_some() }
    }

    /// Adds a chunk as the recorder does.
    fn keep(ring: &mut Ring, chunk: Arc<Chunk<Event>>, since: u64, max_entries: u64) {
        if let Some(chunks) = ring.needed_capacity() {
            ring.grow(&mut Ring::allocate(chunks));
        }
        let capacity = ring.chunks.capacity();
        ring.push(chunk, since, max_entries, &mut DroppedChunks::new());
        assert_eq!(ring.chunks.capacity(), capacity, "it grew under its lock");
    }

    fn kept(ring: &Ring, max_entries: u64) -> Vec<u64> {
        let runs = ring.chunks().filter_map(|chunk| Run::split(chunk, 0, u64::MAX).0).collect();
        let mut kept = Vec::new();
        newest(runs, max_entries, |events| kept.extend(events.iter().map(|event| event.ticks)));
        kept
    }

    #[test]
    fn the_newest_events_survive_in_any_order_of_chunks() {
        for max_entries in 1..12 {
            let mut ring = Ring::default();
            // The third chunk, of a slow thread, overlaps all others.
            for ticks in [&[1, 4][..], &[5, 6], &[2, 3, 11], &[7, 8], &[9, 10]] {
                keep(&mut ring, chunk(ticks), 0, max_entries);
            }
            let all: Vec<u64> = (1..=11).collect();
            assert_eq!(kept(&ring, max_entries), all[all.len() - max_entries as usize..]);
        }
    }

    #[test]
    fn memory_stays_within_one_chunk_of_the_bound() {
        let mut ring = Ring::default();
        for start in 0..1000_u64 {
            let ticks: Vec<u64> = (start * 10..start * 10 + 10).collect();
            keep(&mut ring, chunk(&ticks), 5, 25);
            assert!(ring.len <= 35, "{} events held", ring.len);
        }
        // The first five events are older than the session.
        assert_eq!(ring.evicted() + ring.len, 10_000 - 5);
    }
}
