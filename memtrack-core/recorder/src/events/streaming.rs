//! Decides which thread writes the stream, and when. Full chunks wait in a queue behind the store's lock, which is
//! held only briefly; the stream has a separate lock, which is held while it is written. The stream thread writes
//! them, immediately, so that little is lost if the program dies, and no thread of the program waits for a disk. The
//! child of a fork has no stream thread: there, the thread that fills a chunk writes it, unless another thread is
//! writing, which then writes it too.
//!
//! Only a thread that fills chunks faster than they are written waits, for a while. The stream's lock is never taken
//! under the store's; errors are kept, and reported while no lock is held.
//!
//! **Why does no thread of the program write?** `write` has no time limit: a file on a network can hold it for
//! ever. A thread that fills a chunk puts it into the queue and wakes the stream's thread by a futex. It waits
//! only if 64 chunks are in the queue, for 10 s at most; then the stream ends with a message. A kill loses the
//! queue and the chunks: half a second of events while the disk keeps up, and never more than 64 full chunks,
//! one more of each thread, and those that are being filled.

use super::chunk::Chunk;
use super::stream_file::Stream;
use super::{Recorder, current_thread, session, threads};
use crate::message;
use memtrack_model::event::Event;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Chunks that may wait for the stream, of all threads.
const MAX_WAITING: usize = 64;
/// The number of threads that may add a chunk at the same time.
const MAX_THREADS: usize = current_thread::MAX_STATES + current_thread::SHARED;
/// For a stream with a size bound: bytes of the bound for each chunk that may wait. Fewer may wait then, because all
/// chunks that wait when a part begins are written to it.
const BOUND_PER_WAITING: u64 = 1 << 20;
/// The same in a child where the thread that fills a chunk writes it: only other threads' chunks wait.
const MAX_WAITING_IN_CHILD: usize = 2;
/// The time that a thread that fills chunks faster than the disk takes them waits before the stream ends.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// The number of chunks that are written before the stream's lock is released for a moment; without a stream
/// thread, the writing thread returns to its own work then.
const MAX_AT_ONCE: usize = 8;

/// Whether the stream was given up because writes to its disk did not complete.
pub(super) const NOT_STALLED: u8 = 0;
const STALLED: u8 = 1;
const STALL_REPORTED: u8 = 2;

/// Full chunks in the order in which they are written; each stays until it was. Lies behind the store's lock, and
/// only the thread that holds the stream's lock takes chunks out.
pub(super) struct Queue {
    waiting: VecDeque<Arc<Chunk<Event>>>,
    most: usize,
}

impl Queue {
    /// Makes the queue of a stream with this bound. Must not be called under the lock.
    fn new(max_bytes: Option<u64>) -> Self {
        let most = max_bytes.map_or(MAX_WAITING, |bytes| {
            usize::try_from(bytes / BOUND_PER_WAITING).unwrap_or(usize::MAX).clamp(1, MAX_WAITING)
        });
        Self::with_most(most)
    }

    /// Makes the queue of a fork's child.
    pub(super) fn for_child() -> Self {
        Self::with_most(MAX_WAITING_IN_CHILD)
    }

    fn with_most(most: usize) -> Self {
        // Each thread adds its chunk before it waits, under the store's lock.
        Self { waiting: VecDeque::with_capacity(MAX_WAITING + MAX_THREADS), most }
    }

    /// Adds a full chunk. Returns whether too many wait, so that the thread must wait until some were written.
    pub(super) fn push(&mut self, chunk: Arc<Chunk<Event>>) -> bool {
        self.waiting.push_back(chunk);
        self.must_wait()
    }

    fn must_wait(&self) -> bool {
        self.waiting.len() > self.most
    }
}

/// The chunks to write.
struct Chunks {
    /// The full ones, in order.
    waiting: Vec<Arc<Chunk<Event>>>,
    /// The ones that are being filled.
    partial: Vec<Arc<Chunk<Event>>>,
}

impl Chunks {
    fn are_empty(&self) -> bool {
        self.waiting.is_empty() && self.partial.iter().all(|chunk| chunk.len() == 0)
    }
}

/// The stream, behind the lock of the thread that writes it.
#[derive(Default)]
pub(super) enum Target {
    /// There is no stream.
    #[default]
    None,
    /// This is the child of a fork: its stream is created when there is something to write.
    ForkedChild,
    /// An open stream.
    Open(Box<Stream>),
    /// The child of a fork whose stream could not be created: why, until that was reported.
    Failed(Option<String>),
}

impl Target {
    /// Returns the stream, creating it in the child of a fork.
    fn stream(&mut self) -> Option<&mut Stream> {
        if let Self::ForkedChild = self {
            *self = match session::stream_after_fork() {
                None => Self::None,
                Some(Ok(stream)) => Self::Open(Box::new(stream)),
                Some(Err(error)) => Self::Failed(Some(format!(
                    "the forked process {} is not recorded: {error}",
                    std::process::id()
                ))),
            };
        }
        match self {
            Self::Open(stream) => Some(stream),
            Self::None | Self::ForkedChild | Self::Failed(_) => None,
        }
    }
}

impl Recorder {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the stream, if the lock becomes free in time.
    fn target_within(&self, patience: Duration) -> Option<MutexGuard<'_, Target>> {
        let start = Instant::now();
        loop {
            match self.target.try_lock() {
                Ok(target) => return Some(target),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Returns how long to wait for the stream's lock: its holder may be stuck for ever.
    fn patience(&self) -> Duration {
        if self.stalled.load(Ordering::Relaxed) == NOT_STALLED { DISK_PATIENCE } else { Duration::ZERO }
    }

    /// Streams to `stream` from now on.
    ///
    /// # Errors
    /// Fails when the disk of an earlier stream is still stuck.
    pub(super) fn open_stream(&self, stream: Stream) -> io::Result<()> {
        let Some(mut target) = self.target_within(self.patience()) else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, stalled()));
        };
        let queue = Some(Queue::new(stream.max_bytes()));
        *target = Target::Open(Box::new(stream));
        drop(target);
        self.stalled.store(NOT_STALLED, Ordering::Relaxed);
        self.store().queue = queue;
        Ok(())
    }

    /// Takes the stream out after the waiting chunks are written to it; `None` if there is none.
    ///
    /// # Errors
    /// Fails when the child of a fork could create no stream, or the stream was given up, and that was not reported yet.
    pub(super) fn close_stream(&self) -> io::Result<Option<Stream>> {
        let Some(mut target) = self.target_within(self.patience()) else {
            self.give_up_the_disk();
            return self.report_stall_once();
        };
        self.write_parts(&mut target);
        let taken = std::mem::take(&mut *target);
        drop(target);
        let queue = self.store().queue.take();
        drop(queue);
        match taken {
            // A file with a gap must not look as if it were complete.
            _ if self.stalled.load(Ordering::Relaxed) != NOT_STALLED => self.report_stall_once(),
            Target::Open(stream) => Ok(Some(*stream)),
            Target::Failed(Some(why)) => Err(io::Error::other(why)),
            Target::None | Target::ForkedChild | Target::Failed(None) => Ok(None),
        }
    }

    fn report_stall_once(&self) -> io::Result<Option<Stream>> {
        let was_reported = self.stalled.swap(STALL_REPORTED, Ordering::Relaxed) == STALL_REPORTED;
        if was_reported { Ok(None) } else { Err(io::Error::other(stalled())) }
    }

    /// Drops the stream as it is.
    pub(super) fn drop_stream(&self) {
        let queue = self.store().queue.take();
        let taken = self.target_within(self.patience()).map(|mut target| std::mem::take(&mut *target));
        drop((taken, queue));
    }

    /// Returns the number of the open stream; `None` if there is none.
    pub(super) fn stream_number(&self) -> Option<u32> {
        match &*self.target() {
            Target::Open(stream) => Some(stream.number),
            Target::None | Target::ForkedChild | Target::Failed(_) => None,
        }
    }

    /// Does something with the stream if one is open.
    pub(super) fn with_stream(&self, act: impl FnOnce(&mut Stream)) {
        let mut target = self.target();
        if let Target::Open(stream) = &mut *target {
            guarded(stream, act);
        }
    }

    /// Makes sure that waiting chunks are written. `must_wait`: this thread waits until some of them were.
    #[cold]
    pub(super) fn stream_full_chunks(&self, must_wait: bool) {
        if !self.stream_thread.is_alive() {
            return self.stream_without_thread(must_wait);
        }
        self.stream_thread.wake();
        if !must_wait {
            return;
        }
        let start = Instant::now();
        while self.store().queue.as_ref().is_some_and(Queue::must_wait) {
            if start.elapsed() >= DISK_PATIENCE {
                return self.give_up_the_disk();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Writes some of the waiting chunks, for the stream thread. Returns whether there may be more.
    pub(super) fn stream_waiting(&self) -> bool {
        self.write_waiting(self.target(), MAX_AT_ONCE) == MAX_AT_ONCE
    }

    /// Writes waiting chunks, unless another thread does. `must_wait`: then this thread waits for the other one.
    fn stream_without_thread(&self, must_wait: bool) {
        let mut of_others = 0;
        loop {
            let target = match self.target.try_lock() {
                Ok(target) => Some(target),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            let target = match target {
                Some(target) => target,
                None if !must_wait => return,
                None => match self.target_within(DISK_PATIENCE) {
                    Some(target) => target,
                    None => return self.give_up_the_disk(),
                },
            };
            of_others += self.write_waiting(target, MAX_AT_ONCE - of_others);
            // Chunks that came while the lock was held, from threads that did not get it, have no other writer.
            let more = self.store().queue.as_ref().is_some_and(|queue| !queue.waiting.is_empty());
            if !more || of_others >= MAX_AT_ONCE {
                break;
            }
        }
        // There is no other thread that would.
        self.print_messages();
    }

    /// Writes up to `most` waiting chunks and returns how many it wrote.
    fn write_waiting(&self, mut target: MutexGuard<'_, Target>, most: usize) -> usize {
        for written in 0..most {
            let next = {
                let store = self.store();
                store.queue.as_ref().and_then(|queue| queue.waiting.front().map(Arc::clone))
            };
            let Some(next) = next else { return written };
            if let Some(stream) = target.stream() {
                guarded(stream, |stream| stream.full_chunk(self, &next));
            }
            self.first_is_written();
            if let Some(stream) = target.stream() {
                guarded(stream, |stream| {
                    self.begin_part_if_due(stream, 2);
                });
            }
        }
        most
    }

    /// Removes the first waiting chunk from the queue, only after it was written, so that a chunk in neither place is
    /// written. Only for the thread that holds the stream's lock.
    fn first_is_written(&self) {
        let done = self.store().queue.as_mut().and_then(|queue| queue.waiting.pop_front());
        drop(done);
    }

    /// Begins a new part if this one has grown to `times` the size of a part. Returns whether it did; then all
    /// waiting chunks are written.
    fn begin_part_if_due(&self, stream: &mut Stream, times: u64) -> bool {
        if !stream.is_part_due(times) {
            return false;
        }
        stream.begin_part(self);
        self.write_chunks(stream, &self.chunks(), |stream| {
            // Very many events came meanwhile: this part ends at once.
            if stream.is_part_due(2) {
                stream.begin_part(self);
            }
            false
        });
        stream.take_place();
        true
    }

    /// Begins a new part if one is due: earlier than the threads that fill chunks would.
    pub(super) fn part_if_due(&self) {
        self.with_stream(|stream| {
            self.begin_part_if_due(stream, 1);
        });
    }

    /// Ends the stream, because the disk is stuck and chunks pile up. The stream itself cannot be marked, since it is
    /// locked.
    fn give_up_the_disk(&self) {
        let waiting = self.store().queue.take();
        if waiting.is_some() {
            self.stalled.store(STALLED, Ordering::Relaxed);
        }
        drop(waiting);
    }

    /// Appends the events in chunks that are not full to the stream.
    pub(super) fn stream_parts(&self) {
        let mut target = self.target();
        self.write_parts(&mut target);
    }

    /// Does the same, unless another thread holds the stream for longer than this.
    pub(super) fn stream_parts_within(&self, patience: Duration) {
        if let Some(mut target) = self.target_within(patience) {
            self.write_parts(&mut target);
        }
    }

    fn write_parts(&self, target: &mut Target) {
        if let Target::None = target {
            return;
        }
        let chunks = self.chunks();
        if chunks.are_empty() {
            return;
        }
        let Some(stream) = target.stream() else { return };
        guarded(stream, |stream| {
            self.write_chunks(stream, &chunks, |stream| self.begin_part_if_due(stream, 2));
            stream.marks();
        });
    }

    /// Writes the chunks, until `enough` returns true before one of them.
    fn write_chunks(
        &self,
        stream: &mut Stream,
        chunks: &Chunks,
        mut enough: impl FnMut(&mut Stream) -> bool,
    ) {
        for chunk in &chunks.waiting {
            if enough(stream) {
                return;
            }
            stream.full_chunk(self, chunk);
            self.first_is_written();
        }
        for chunk in &chunks.partial {
            if enough(stream) {
                return;
            }
            stream.part_of_chunk(self, chunk);
        }
    }

    /// Returns all chunks that are not written yet, except for events that come meanwhile.
    #[allow(unsafe_code)]
    fn chunks(&self) -> Chunks {
        let mut chunks = Chunks { waiting: Vec::new(), partial: Vec::new() };
        let filling = || threads::states().flat_map(|state| state.slots.iter().map(|slot| &slot.chunk));
        let store = loop {
            let store = self.store();
            let waiting = store.queue.as_ref().map_or(0, |queue| queue.waiting.len());
            // Threads get chunks only under the lock.
            let partial = filling().filter(|chunk| !chunk.load(Ordering::Relaxed).is_null()).count();
            if waiting <= chunks.waiting.capacity() && partial <= chunks.partial.capacity() {
                break store;
            }
            // Room is made while it is not locked.
            drop(store);
            chunks.waiting.reserve(waiting + waiting / 8);
            chunks.partial.reserve(partial + partial / 8);
        };
        let Some(queue) = &store.queue else { return chunks };
        chunks.waiting.extend(queue.waiting.iter().map(Arc::clone));
        for chunk in filling() {
            let chunk = chunk.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: the pointer came from `Arc::into_raw`, and a thread takes its chunk out of its slot only
                // under the store's lock, which is held here: the count that the slot owns is still there.
                chunks.partial.push(unsafe {
                    Arc::increment_strong_count(chunk.cast_const());
                    Arc::from_raw(chunk.cast_const())
                });
            }
        }
        chunks
    }

    /// Prints the stream's messages, once. The caller holds no lock.
    pub(super) fn print_messages(&self) {
        // If another thread is writing, a later call prints them.
        let messages = match self.target_within(Duration::ZERO).as_deref_mut() {
            Some(Target::Open(stream)) => stream.take_messages(),
            Some(Target::Failed(trouble)) => trouble.take().into_iter().collect(),
            Some(Target::None | Target::ForkedChild) | None => Vec::new(),
        };
        messages.into_iter().for_each(message::print);
        let reported =
            self.stalled.compare_exchange(STALLED, STALL_REPORTED, Ordering::Relaxed, Ordering::Relaxed);
        if reported.is_ok() {
            message::print(stalled());
        }
    }
}

fn stalled() -> String {
    format!("the stream ended: its disk took nothing for {} s", DISK_PATIENCE.as_secs())
}

/// Does something with a stream; a panic, which would be a bug in memtrack, ends the stream and not the program.
fn guarded(stream: &mut Stream, act: impl FnOnce(&mut Stream)) {
    if catch_unwind(AssertUnwindSafe(|| act(stream))).is_err() {
        stream.fail("memtrack panicked");
    }
}

/// The lock of the thread that writes the stream.
pub(super) type TargetLock = Mutex<Target>;
