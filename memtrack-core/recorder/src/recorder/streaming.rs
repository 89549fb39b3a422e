//! Who writes the stream, and when. Full chunks wait in a queue behind the store's lock, which is held for moments; the
//! stream has a lock of its own, which is held while it is written. The keeper writes them, at once, so that little is lost
//! with the program, and no thread of the program can be held by a disk. The child of a fork has no keeper: there, whoever
//! fills a chunk writes it, unless another thread is writing, which then takes it along.
//!
//! Only who fills chunks faster than they are written waits, for a while. The stream's lock is never asked for under the
//! store's; what goes wrong is kept, and told under none.
//!
//! **Why does no thread of the program write?** `write` has no time limit: a file on a network can hold it for ever. A
//! thread that fills a chunk puts it into the queue and wakes the stream's thread by a futex. It waits only if 64 chunks
//! are in the queue, for 10 s at most; then the stream ends with a message. A kill loses what is in the queue and in
//! chunks: half a second of events while the disk keeps up, and never more than 64 full chunks, one more of each thread,
//! and those that are being filled.

use super::chunk::Chunk;
use super::stream_file::Stream;
use super::{Recorder, mine, session, threads};
use crate::message;
use memtrack_model::event::Event;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Chunks that may wait for the stream, of all threads.
const MOST_WAITING: usize = 64;
/// So many threads may add a chunk at a time.
const MOST_THREADS: usize = mine::MAX_STATES + mine::SHARED;
/// Of a stream with a bound, bytes of it for each chunk that may wait: fewer then, because those that wait when a part begins
/// are all written to it.
const BOUND_PER_WAITING: u64 = 1 << 20;
/// Where whoever fills a chunk writes it, only the others wait.
const MOST_WAITING_OF_CHILD: usize = 2;
/// How long a thread that outruns the disk waits for it before the stream ends.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// Chunks that are written before the stream's lock is let go for a moment; without a keeper, a thread goes back to its own
/// work then.
const MOST_AT_ONCE: usize = 8;

/// Whether the stream was given up because its disk takes nothing.
pub(super) const NOT_STALLED: u8 = 0;
const STALLED: u8 = 1;
const STALLED_AND_TOLD: u8 = 2;

/// Full chunks in the order in which they are to be written; each stays until it was. Lies behind the store's lock, and only
/// who holds the stream's takes some out.
pub(super) struct Queue {
    waiting: VecDeque<Arc<Chunk<Event>>>,
    most: usize,
}

impl Queue {
    /// Of a stream with this bound. Not to be made under the lock.
    fn new(max_bytes: Option<u64>) -> Self {
        let most = max_bytes.map_or(MOST_WAITING, |bytes| {
            usize::try_from(bytes / BOUND_PER_WAITING).unwrap_or(usize::MAX).clamp(1, MOST_WAITING)
        });
        Self::with_most(most)
    }

    /// Of the child of a fork.
    pub(super) fn of_child() -> Self {
        Self::with_most(MOST_WAITING_OF_CHILD)
    }

    fn with_most(most: usize) -> Self {
        // Each thread adds its chunk before it waits, under the store's lock.
        Self { waiting: VecDeque::with_capacity(MOST_WAITING + MOST_THREADS), most }
    }

    /// Takes a full chunk. Returns whether the thread must wait until something was written, because too many wait.
    pub(super) fn push(&mut self, chunk: Arc<Chunk<Event>>) -> bool {
        self.waiting.push_back(chunk);
        self.outruns()
    }

    fn outruns(&self) -> bool {
        self.waiting.len() > self.most
    }
}

/// What is to be written.
struct Chunks {
    /// The full ones, in their order.
    waiting: Vec<Arc<Chunk<Event>>>,
    /// Those that are being filled.
    partial: Vec<Arc<Chunk<Event>>>,
}

impl Chunks {
    fn are_empty(&self) -> bool {
        self.waiting.is_empty() && self.partial.iter().all(|chunk| chunk.len() == 0)
    }
}

/// The stream, behind the lock of whoever writes it.
#[derive(Default)]
pub(super) enum Target {
    /// Nothing is streamed.
    #[default]
    None,
    /// This is the child of a fork: its stream is made when there is something to write.
    OfChild,
    /// An open stream.
    Open(Box<Stream>),
    /// The child of a fork whose stream could not be made: why, until it was told.
    Failed(Option<String>),
}

impl Target {
    /// The stream, which is made now in the child of a fork.
    fn stream(&mut self) -> Option<&mut Stream> {
        if let Self::OfChild = self {
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
            Self::None | Self::OfChild | Self::Failed(_) => None,
        }
    }
}

impl Recorder {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream's lock, if it comes free in time.
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

    /// How long the stream's lock is worth waiting for: who has it may be stuck for ever.
    fn patience(&self) -> Duration {
        if self.stalled.load(Ordering::Relaxed) == NOT_STALLED { DISK_PATIENCE } else { Duration::ZERO }
    }

    /// Streams to `stream` from now on.
    ///
    /// # Errors
    /// When an earlier stream's disk still takes nothing.
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

    /// Takes the stream out after what was waiting is written to it; `None` when there is none.
    ///
    /// # Errors
    /// When the child of a fork could make no stream, or the stream was given up, and it was not told yet.
    pub(super) fn close_stream(&self) -> io::Result<Option<Stream>> {
        let Some(mut target) = self.target_within(self.patience()) else {
            self.give_up_the_disk();
            return self.told_of_stall();
        };
        self.write_parts(&mut target);
        let taken = std::mem::take(&mut *target);
        drop(target);
        let queue = self.store().queue.take();
        drop(queue);
        match taken {
            // A file with a hole must not look as if it were whole.
            _ if self.stalled.load(Ordering::Relaxed) != NOT_STALLED => self.told_of_stall(),
            Target::Open(stream) => Ok(Some(*stream)),
            Target::Failed(Some(why)) => Err(io::Error::other(why)),
            Target::None | Target::OfChild | Target::Failed(None) => Ok(None),
        }
    }

    fn told_of_stall(&self) -> io::Result<Option<Stream>> {
        let is_told = self.stalled.swap(STALLED_AND_TOLD, Ordering::Relaxed) == STALLED_AND_TOLD;
        if is_told { Ok(None) } else { Err(io::Error::other(stalled())) }
    }

    /// Gives the stream up as it is.
    pub(super) fn drop_stream(&self) {
        let queue = self.store().queue.take();
        let taken = self.target_within(self.patience()).map(|mut target| std::mem::take(&mut *target));
        drop((taken, queue));
    }

    /// The number of the stream that is open; `None` when none is.
    pub(super) fn stream_number(&self) -> Option<u32> {
        match &*self.target() {
            Target::Open(stream) => Some(stream.number),
            Target::None | Target::OfChild | Target::Failed(_) => None,
        }
    }

    /// Does something with the stream if one is open.
    pub(super) fn with_stream(&self, act: impl FnOnce(&mut Stream)) {
        let mut target = self.target();
        if let Target::Open(stream) = &mut *target {
            guarded(stream, act);
        }
    }

    /// Has what waits written. `outruns`: this thread waits until some of it was.
    #[cold]
    pub(super) fn stream_full_chunks(&self, outruns: bool) {
        if !self.keeper.is_alive() {
            return self.stream_without_keeper(outruns);
        }
        self.keeper.wake();
        if !outruns {
            return;
        }
        let start = Instant::now();
        while self.store().queue.as_ref().is_some_and(Queue::outruns) {
            if start.elapsed() >= DISK_PATIENCE {
                return self.give_up_the_disk();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Writes some of what waits, for the keeper. Whether that may not have been all.
    pub(super) fn stream_waiting(&self) -> bool {
        self.write_waiting(self.target(), MOST_AT_ONCE) == MOST_AT_ONCE
    }

    /// Writes what waits, unless another thread is at it. `outruns`: this thread waits for that one then.
    fn stream_without_keeper(&self, outruns: bool) {
        let mut of_others = 0;
        loop {
            let target = match self.target.try_lock() {
                Ok(target) => Some(target),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            let target = match target {
                Some(target) => target,
                None if !outruns => return,
                None => match self.target_within(DISK_PATIENCE) {
                    Some(target) => target,
                    None => return self.give_up_the_disk(),
                },
            };
            of_others += self.write_waiting(target, MOST_AT_ONCE - of_others);
            // What came while the lock was held, by threads that did not get it, is nobody else's to write.
            let more = self.store().queue.as_ref().is_some_and(|queue| !queue.waiting.is_empty());
            if !more || of_others >= MOST_AT_ONCE {
                break;
            }
        }
        // Nobody else would.
        self.tell_news();
    }

    /// Writes up to so many waiting chunks and returns how many it wrote.
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

    /// Takes the first that waits out of the queue; not before it was written, so that what is in neither was. Only who holds
    /// the stream's lock may.
    fn first_is_written(&self) {
        let done = self.store().queue.as_mut().and_then(|queue| queue.waiting.pop_front());
        drop(done);
    }

    /// Begins a new part if this one has become as large as `times` what one takes. Returns whether; then all that waited is
    /// written.
    fn begin_part_if_due(&self, stream: &mut Stream, times: u64) -> bool {
        if !stream.is_part_due(times) {
            return false;
        }
        stream.begin_part(self);
        self.write_chunks(stream, &self.chunks(), |stream| {
            // Very much happened meanwhile: this part gives way at once.
            if stream.is_part_due(2) {
                stream.begin_part(self);
            }
            false
        });
        stream.take_place();
        true
    }

    /// Begins a new part where one is due: earlier than those who fill chunks have it done.
    pub(super) fn part_if_due(&self) {
        self.with_stream(|stream| {
            self.begin_part_if_due(stream, 1);
        });
    }

    /// The disk takes nothing and chunks pile up: the stream ends here. It cannot be told by the stream, which is locked.
    fn give_up_the_disk(&self) {
        let waiting = self.store().queue.take();
        if waiting.is_some() {
            self.stalled.store(STALLED, Ordering::Relaxed);
        }
        drop(waiting);
    }

    /// Appends to the stream what lies in chunks that are not full.
    pub(super) fn stream_parts(&self) {
        let mut target = self.target();
        self.write_parts(&mut target);
    }

    /// Does so unless another thread has the stream for longer than this.
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

    /// Writes these, until it is `enough` before one of them.
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

    /// All that is not written yet, but for events that come meanwhile.
    #[allow(unsafe_code)]
    fn chunks(&self) -> Chunks {
        let mut chunks = Chunks { waiting: Vec::new(), partial: Vec::new() };
        let filling = || threads::states().flat_map(|state| state.slots.iter().map(|slot| &slot.chunk));
        let store = loop {
            let store = self.store();
            let waiting = store.queue.as_ref().map_or(0, |queue| queue.waiting.len());
            // Only under the lock threads get chunks.
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
                // SAFETY: the pointer came from `Arc::into_raw`, and a thread takes its chunk out of its slot only under
                // the store's lock, which is held here: the count that the slot owns is still there.
                chunks.partial.push(unsafe {
                    Arc::increment_strong_count(chunk.cast_const());
                    Arc::from_raw(chunk.cast_const())
                });
            }
        }
        chunks
    }

    /// Tells what there is to say of the stream, once. The caller holds no lock.
    pub(super) fn tell_news(&self) {
        // Who is writing will be done when it is asked for again.
        let news = match self.target_within(Duration::ZERO).as_deref_mut() {
            Some(Target::Open(stream)) => stream.take_news(),
            Some(Target::Failed(trouble)) => trouble.take().into_iter().collect(),
            Some(Target::None | Target::OfChild) | None => Vec::new(),
        };
        news.into_iter().for_each(message::say);
        let told =
            self.stalled.compare_exchange(STALLED, STALLED_AND_TOLD, Ordering::Relaxed, Ordering::Relaxed);
        if told.is_ok() {
            message::say(stalled());
        }
    }
}

fn stalled() -> String {
    format!("the stream ended: its disk took nothing for {} s", DISK_PATIENCE.as_secs())
}

/// Does something with a stream; a panic, which would be memtrack's own mistake, ends the stream and not the program.
fn guarded(stream: &mut Stream, act: impl FnOnce(&mut Stream)) {
    if catch_unwind(AssertUnwindSafe(|| act(stream))).is_err() {
        stream.fail("memtrack panicked");
    }
}

/// The lock of whoever writes the stream.
pub(super) type TargetLock = Mutex<Target>;
