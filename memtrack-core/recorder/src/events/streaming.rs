//! Decides which thread writes the stream, and when. Full chunks wait in a queue protected by the store's lock, which
//! is held only briefly; the stream has a separate lock, which is held while the stream is written. The stream thread
//! writes full chunks immediately, so that little is lost if the program dies and no thread of the program waits for a
//! disk. A forked child has no stream thread, so the thread that fills a chunk writes it. If another thread is already
//! writing, that thread also writes this chunk.
//!
//! Only a thread that fills chunks faster than they are written waits, for a limited time. The stream's lock is never
//! taken while the store's is held; errors are stored, and reported while no lock is held.
//!
//! **Why does no thread of the program write?** `write` has no time limit: a file on a network can block it for ever. A
//! thread that fills a chunk puts it into the queue and wakes the stream thread through a futex. It waits only if 64
//! chunks are in the queue, for 10 s at most. After that, the stream ends with a message. If the program is killed, the queued
//! chunks and those being filled are lost: half a second of events while the disk keeps up, and never more than 64 full
//! chunks, one more per thread, and the chunks being filled.

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

/// The maximum number of chunks, of all threads, that may wait for the stream.
const MAX_WAITING: usize = 64;
/// The maximum number of threads that can add a chunk at the same time.
const MAX_THREADS: usize = current_thread::MAX_STATES + current_thread::SHARED_STATE_COUNT;
/// For a stream with a size bound: one chunk may wait per this many bytes of the bound. Fewer may wait than without a
/// bound, because all waiting chunks are written to a new part when it begins.
const BOUND_BYTES_PER_WAITING: u64 = 1 << 20;
/// The maximum number of waiting chunks in a forked child. There, the thread that fills a chunk writes it, so only
/// other threads' chunks wait.
const MAX_WAITING_IN_CHILD: usize = 2;
/// How long a thread that fills chunks faster than they are written waits before the stream ends.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of chunks that are written before the stream's lock is briefly released. Without a stream thread,
/// the writing thread then returns to the program's work.
const MAX_AT_ONCE: usize = 8;

/// The values of `Recorder::stalled`: whether the stream was abandoned because writes to its disk did not complete.
pub(super) const NOT_STALLED: u8 = 0;
const STALLED: u8 = 1;
const STALL_REPORTED: u8 = 2;

/// The full chunks in the order in which they are written. Each stays in the queue until it has been written. Protected
/// by the store's lock; only the thread that holds the stream's lock removes chunks.
pub(super) struct Queue {
    waiting: VecDeque<Arc<Chunk<Event>>>,
    max_waiting: usize,
}

impl Queue {
    /// Creates the queue of a stream with this size bound. Must not be called while the store is locked.
    fn new(max_bytes: Option<u64>) -> Self {
        let max_waiting = max_bytes.map_or(MAX_WAITING, |bytes| {
            usize::try_from(bytes / BOUND_BYTES_PER_WAITING).unwrap_or(usize::MAX).clamp(1, MAX_WAITING)
        });
        Self::with_max_waiting(max_waiting)
    }

    /// Creates the queue of a forked child.
    pub(super) fn for_child() -> Self {
        Self::with_max_waiting(MAX_WAITING_IN_CHILD)
    }

    fn with_max_waiting(max_waiting: usize) -> Self {
        // Each thread adds its chunk before it waits: with this capacity the queue never grows under the store's lock.
        Self { waiting: VecDeque::with_capacity(MAX_WAITING + MAX_THREADS), max_waiting }
    }

    /// Adds a full chunk. Returns whether too many chunks wait, so that the calling thread must wait until some are
    /// written.
    pub(super) fn push(&mut self, chunk: Arc<Chunk<Event>>) -> bool {
        self.waiting.push_back(chunk);
        self.must_wait()
    }

    fn must_wait(&self) -> bool {
        self.waiting.len() > self.max_waiting
    }
}

/// The chunks that are not written yet.
struct UnwrittenChunks {
    /// The full chunks, in order.
    waiting: Vec<Arc<Chunk<Event>>>,
    /// The chunks that are being filled.
    partial: Vec<Arc<Chunk<Event>>>,
}

impl UnwrittenChunks {
    fn are_empty(&self) -> bool {
        self.waiting.is_empty() && self.partial.iter().all(|chunk| chunk.len() == 0)
    }
}

/// The stream. The thread that writes it holds the lock of this value.
#[derive(Default)]
pub(super) enum Target {
    /// There is no stream.
    #[default]
    None,
    /// The process is a forked child: its stream is created when there is something to write.
    ForkedChild,
    /// An open stream.
    Open(Box<Stream>),
    /// The process is a forked child whose stream could not be created. Contains the reason until it is reported.
    Failed(Option<String>),
}

impl Target {
    /// Returns the stream; creates it in a forked child.
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

    /// Locks the stream; `None` if the lock does not become free within the timeout.
    fn target_within(&self, timeout: Duration) -> Option<MutexGuard<'_, Target>> {
        lock_within(&self.target, timeout, Duration::from_micros(50))
    }

    /// Returns how long to wait for the stream's lock. The thread that holds the lock may be stuck for ever.
    fn lock_timeout(&self) -> Duration {
        if self.stalled.load(Ordering::Relaxed) == NOT_STALLED { DISK_TIMEOUT } else { Duration::ZERO }
    }

    /// Sets the stream that events are written to from now on.
    ///
    /// # Errors
    /// Fails when the disk of an earlier stream is still stuck.
    pub(super) fn open_stream(&self, stream: Stream) -> io::Result<()> {
        let Some(mut target) = self.target_within(self.lock_timeout()) else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, stall_message()));
        };
        let queue = Some(Queue::new(stream.max_bytes()));
        *target = Target::Open(Box::new(stream));
        drop(target);
        self.stalled.store(NOT_STALLED, Ordering::Relaxed);
        self.store().queue = queue;
        Ok(())
    }

    /// Writes the remaining events to the stream and returns it; `None` if there is no stream.
    ///
    /// # Errors
    /// Fails, once, when a forked child could not create its stream, or the stream was abandoned.
    pub(super) fn close_stream(&self) -> io::Result<Option<Stream>> {
        let Some(mut target) = self.target_within(self.lock_timeout()) else {
            self.abandon_stream();
            return self.report_stall_once();
        };
        self.write_unwritten(&mut target);
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
        if was_reported { Ok(None) } else { Err(io::Error::other(stall_message())) }
    }

    /// Drops the stream without finishing it.
    pub(super) fn drop_stream(&self) {
        let queue = self.store().queue.take();
        let taken = self.target_within(self.lock_timeout()).map(|mut target| std::mem::take(&mut *target));
        drop((taken, queue));
    }

    /// Returns the number of the open stream; `None` if there is none.
    pub(super) fn stream_number(&self) -> Option<u32> {
        match &*self.target() {
            Target::Open(stream) => Some(stream.number),
            Target::None | Target::ForkedChild | Target::Failed(_) => None,
        }
    }

    /// Calls `act` with the stream if one is open.
    pub(super) fn with_stream(&self, act: impl FnOnce(&mut Stream)) {
        let mut target = self.target();
        if let Target::Open(stream) = &mut *target {
            catch_panic(stream, act);
        }
    }

    /// Makes sure that waiting chunks are written. If the calling thread `must_wait`, it waits until enough chunks are
    /// written.
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
            if start.elapsed() >= DISK_TIMEOUT {
                return self.abandon_stream();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Writes some of the waiting chunks, for the stream thread. Returns whether there may be more.
    pub(super) fn stream_waiting(&self) -> bool {
        self.write_waiting(self.target(), MAX_AT_ONCE) == MAX_AT_ONCE
    }

    /// Writes waiting chunks. If another thread is writing, returns at once, or waits for that thread first if the calling
    /// thread `must_wait`.
    fn stream_without_thread(&self, must_wait: bool) {
        let mut written = 0;
        loop {
            let timeout = if must_wait { DISK_TIMEOUT } else { Duration::ZERO };
            let Some(target) = self.target_within(timeout) else {
                if must_wait {
                    self.abandon_stream();
                }
                return;
            };
            written += self.write_waiting(target, MAX_AT_ONCE - written);
            // If other threads could not get the lock meanwhile, their chunks must be written here.
            let more = self.store().queue.as_ref().is_some_and(|queue| !queue.waiting.is_empty());
            if !more || written >= MAX_AT_ONCE {
                break;
            }
        }
        // No other thread would print the stream's messages.
        self.print_messages(Duration::ZERO);
    }

    /// Writes up to `max_chunks` waiting chunks and returns how many it wrote.
    fn write_waiting(&self, mut target: MutexGuard<'_, Target>, max_chunks: usize) -> usize {
        for written in 0..max_chunks {
            let next = {
                let store = self.store();
                store.queue.as_ref().and_then(|queue| queue.waiting.front().map(Arc::clone))
            };
            let Some(next) = next else { return written };
            if let Some(stream) = target.stream() {
                catch_panic(stream, |stream| stream.append_full_chunk(self, &next));
            }
            self.remove_first_waiting();
            if let Some(stream) = target.stream() {
                catch_panic(stream, |stream| {
                    self.begin_part_if_due(stream, 2);
                });
            }
        }
        max_chunks
    }

    /// Removes the first waiting chunk from the queue after it was written, so that every chunk is in the queue or in
    /// the stream. Must be called by the thread that holds the stream's lock.
    fn remove_first_waiting(&self) {
        let done = self.store().queue.as_mut().and_then(|queue| queue.waiting.pop_front());
        drop(done);
    }

    /// Begins a new part if the current one has grown to `times` the size of a part, and writes all waiting chunks to
    /// it. Returns whether a new part was begun.
    fn begin_part_if_due(&self, stream: &mut Stream, times: u64) -> bool {
        if !stream.is_part_due(times) {
            return false;
        }
        stream.begin_part(self);
        self.write_chunks(stream, &self.chunks(), |stream| {
            // If very many events were recorded meanwhile, this part ends at once.
            if stream.is_part_due(2) {
                stream.begin_part(self);
            }
            false
        });
        stream.take_place();
        true
    }

    /// Begins a new part if the current one has reached the size of a part. (Writing full chunks begins one only at twice
    /// that size.)
    pub(super) fn begin_part_early(&self) {
        self.with_stream(|stream| {
            self.begin_part_if_due(stream, 1);
        });
    }

    /// Ends the stream, because the disk is stuck and chunks pile up. Only the queue and a flag are changed, because
    /// another thread has locked the stream.
    fn abandon_stream(&self) {
        let waiting = self.store().queue.take();
        if waiting.is_some() {
            self.stalled.store(STALLED, Ordering::Relaxed);
        }
        drop(waiting);
    }

    /// Appends all events to the stream, including those in chunks that are not full.
    pub(super) fn stream_all_chunks(&self) {
        let mut target = self.target();
        self.write_unwritten(&mut target);
    }

    /// Appends all events to the stream, unless another thread keeps the stream locked for longer than the timeout.
    pub(super) fn stream_all_chunks_within(&self, timeout: Duration) {
        if let Some(mut target) = self.target_within(timeout) {
            self.write_unwritten(&mut target);
        }
    }

    fn write_unwritten(&self, target: &mut Target) {
        if let Target::None = target {
            return;
        }
        let chunks = self.chunks();
        if chunks.are_empty() {
            return;
        }
        let Some(stream) = target.stream() else { return };
        catch_panic(stream, |stream| {
            self.write_chunks(stream, &chunks, |stream| self.begin_part_if_due(stream, 2));
            stream.append_marks();
        });
    }

    /// Writes the chunks in order. Calls `enough` before each chunk, and stops if it returns true.
    fn write_chunks(
        &self,
        stream: &mut Stream,
        chunks: &UnwrittenChunks,
        mut enough: impl FnMut(&mut Stream) -> bool,
    ) {
        for chunk in &chunks.waiting {
            if enough(stream) {
                return;
            }
            stream.append_full_chunk(self, chunk);
            self.remove_first_waiting();
        }
        for chunk in &chunks.partial {
            if enough(stream) {
                return;
            }
            stream.append_partial_chunk(self, chunk);
        }
    }

    /// Returns all chunks with events that are not written yet.
    #[allow(unsafe_code)]
    fn chunks(&self) -> UnwrittenChunks {
        let mut chunks = UnwrittenChunks { waiting: Vec::new(), partial: Vec::new() };
        let filling = || threads::states().flat_map(|state| &state.chunks);
        let store = loop {
            let store = self.store();
            let waiting = store.queue.as_ref().map_or(0, |queue| queue.waiting.len());
            // Threads get new chunks only while the store is locked.
            let partial = filling().filter(|chunk| !chunk.load(Ordering::Relaxed).is_null()).count();
            if waiting <= chunks.waiting.capacity() && partial <= chunks.partial.capacity() {
                break store;
            }
            // Capacity is reserved while the store is not locked.
            drop(store);
            chunks.waiting.reserve(waiting + waiting / 8);
            chunks.partial.reserve(partial + partial / 8);
        };
        let Some(queue) = &store.queue else { return chunks };
        chunks.waiting.extend(queue.waiting.iter().map(Arc::clone));
        // SAFETY: the store is locked.
        chunks.partial.extend(filling().filter_map(|slot| unsafe { threads::chunk_in(slot) }));
        chunks
    }

    /// Prints the stream's messages, once. The caller must hold no lock. If another thread is writing for longer than the
    /// timeout, a later call prints them.
    pub(super) fn print_messages(&self, timeout: Duration) {
        let messages = match self.target_within(timeout).as_deref_mut() {
            Some(Target::Open(stream)) => stream.take_messages(),
            Some(Target::Failed(trouble)) => trouble.take().into_iter().collect(),
            Some(Target::None | Target::ForkedChild) | None => Vec::new(),
        };
        messages.into_iter().for_each(message::print);
        let reported =
            self.stalled.compare_exchange(STALLED, STALL_REPORTED, Ordering::Relaxed, Ordering::Relaxed);
        if reported.is_ok() {
            message::print(stall_message());
        }
    }
}

fn stall_message() -> String {
    format!("the stream ended: its disk accepted no data for {} s", DISK_TIMEOUT.as_secs())
}

/// Calls `act` with a stream. A panic, which would be a bug in memtrack, ends the stream and not the program.
fn catch_panic(stream: &mut Stream, act: impl FnOnce(&mut Stream)) {
    if catch_unwind(AssertUnwindSafe(|| act(stream))).is_err() {
        stream.fail("memtrack panicked");
    }
}

/// The stream and its lock, which the writing thread holds.
pub(super) type TargetLock = Mutex<Target>;

/// Locks a mutex; `None` if the lock does not become free within the timeout. Waits in steps of `pause`.
pub(super) fn lock_within<T>(
    mutex: &Mutex<T>,
    timeout: Duration,
    pause: Duration,
) -> Option<MutexGuard<'_, T>> {
    let start = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(locked) => return Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() >= timeout => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
        }
    }
}
