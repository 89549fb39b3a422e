//! The streams, and the work on them that the program has not waited for. In the mock, work is complete when the call returns,
//! but with the real driver a program must wait: the driver unmaps memory immediately, even while work uses it. The mock
//! aborts a program that unmaps or frees such memory, with a message.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::handle::{self, Tag};
use crate::report::STREAMS;
use crate::status::{CuResult, Status};

/// `CU_STREAM_NON_BLOCKING`: does not synchronize with the default stream.
const NON_BLOCKING: u32 = 1;
/// The maximum number of entries of a stream; beyond this number, the oldest entries count as done.
const MAX_ENTRIES: usize = 1 << 12;

/// A stream: its context, and its handle as a number.
type Stream = (u16, usize);

/// A point in a stream, given by the number of the last entry before it; 0 if there is none.
#[derive(Clone, Copy)]
pub(crate) struct Point(Stream, u64);

enum Entry {
    Uses(Range<u64>),
    After(Point),
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<(u64, Entry)>,
    last: u64,
}

#[derive(Default)]
pub(crate) struct Streams {
    /// The existing streams, with their flags.
    existing: HashMap<Stream, u32>,
    /// The queues of streams with work, destroyed ones included.
    queues: HashMap<Stream, Queue>,
}

/// Locks all streams. No other lock is acquired while they are locked.
pub(crate) fn streams() -> MutexGuard<'static, Option<Streams>> {
    static ALL: Mutex<Option<Streams>> = Mutex::new(None);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(act: impl FnOnce(&mut Streams) -> T) -> T {
    act(streams().get_or_insert_default())
}

/// Records a new stream.
pub(crate) fn created(stream: *mut c_void, context: u16, flags: u32) {
    with(|all| all.existing.insert((context, stream.addr()), flags));
    STREAMS.fetch_add(1, Ordering::Relaxed);
}

/// Records the end of a stream. Its queued work continues.
///
/// # Errors
/// `INVALID_HANDLE` if the stream does not exist or was destroyed.
pub(crate) fn destroyed(stream: *mut c_void) -> CuResult {
    let (context, _) = handle::read(Tag::Stream, stream)?;
    with(|all| all.existing.remove(&(context, stream.addr()))).ok_or(Status::INVALID_HANDLE)?;
    STREAMS.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Returns whether a stream exists.
pub(crate) fn is_stream(stream: *mut c_void, context: u16) -> bool {
    with(|all| all.existing.contains_key(&(context, stream.addr())))
}

fn is_default(handle: usize) -> bool {
    handle <= 1
}

fn key(context: Context, stream: *mut c_void) -> Stream {
    let handle = stream.addr();
    (context.number, if is_default(handle) { 0 } else { handle })
}

/// Records work on a stream that uses memory.
pub(crate) fn queued(context: Context, stream: *mut c_void, address: u64, bytes: usize) {
    let stream = key(context, stream);
    with(|all| all.add(stream, Entry::Uses(address..address.saturating_add(bytes as u64))));
}

/// Returns the current end of a stream.
pub(crate) fn point(context: Context, stream: *mut c_void) -> Point {
    let stream = key(context, stream);
    with(|all| Point(stream, all.queues.get(&stream).map_or(0, |queue| queue.last)))
}

/// Makes subsequent work on a stream wait for a point.
pub(crate) fn wait(context: Context, stream: *mut c_void, point: Point) {
    let stream = key(context, stream);
    with(|all| all.add(stream, Entry::After(point)));
}

/// Records that the program waited for a point.
pub(crate) fn reached(point: Point) {
    with(|all| all.reach(point));
}

/// Records that the program waited for a stream.
pub(crate) fn stream_done(context: Context, stream: *mut c_void) {
    let stream = key(context, stream);
    with(|all| {
        all.reach(Point(stream, u64::MAX));
        if stream.1 == 0 {
            let blocks = |other: &Stream| {
                other.0 == stream.0 && all.existing.get(other).is_none_or(|flags| flags & NON_BLOCKING == 0)
            };
            let blocking: Vec<Stream> = all.queues.keys().copied().filter(blocks).collect();
            blocking.into_iter().for_each(|other| all.reach(Point(other, u64::MAX)));
        }
    });
}

/// Records that the program waited for all work of a context.
pub(crate) fn context_done(context: u16) {
    with(|all| {
        let streams: Vec<Stream> = all.queues.keys().copied().filter(|stream| stream.0 == context).collect();
        streams.into_iter().for_each(|stream| all.reach(Point(stream, u64::MAX)));
    });
}

/// Records the end of a context and its streams.
pub(crate) fn context_ended(context: u16) {
    context_done(context);
    let ended = with(|all| {
        let before = all.existing.len();
        all.existing.retain(|stream, _| stream.0 != context);
        before - all.existing.len()
    });
    STREAMS.fetch_sub(ended as _, Ordering::Relaxed);
}

/// Aborts the process if unfinished work on any stream uses memory that `call` unmaps immediately.
pub(crate) fn check_free(call: &str, address: u64, bytes: u64) {
    let used = with(|all| all.first_use(&(address..address.saturating_add(bytes)), |_, _| true));
    abort_if_used(call, address, bytes, used);
}

/// Aborts the process if work on other streams uses memory that is freed in stream order on this stream. The default stream
/// waits for all others, except for non-blocking ones, which are not checked.
pub(crate) fn check_free_on(call: &str, address: u64, bytes: u64, context: Context, stream: *mut c_void) {
    let stream = key(context, stream);
    if stream.1 == 0 {
        return;
    }
    let used = with(|all| {
        let before = all.reached_before(stream);
        all.first_use(&(address..address.saturating_add(bytes)), |other, number| {
            other != stream && other.1 != 0 && before.get(&other).is_none_or(|&reached| reached < number)
        })
    });
    abort_if_used(call, address, bytes, used);
}

fn abort_if_used(call: &str, address: u64, bytes: u64, used: Option<Stream>) {
    if let Some((_, stream)) = used {
        eprintln!(
            "mock CUDA driver: {call} of {bytes} bytes at {address:#x}, which work on stream {stream:#x} uses; the \
             program has not waited for it"
        );
        std::process::abort();
    }
}

impl Streams {
    fn add(&mut self, stream: Stream, entry: Entry) {
        let queue = self.queues.entry(stream).or_default();
        queue.last += 1;
        queue.entries.push_back((queue.last, entry));
        if queue.entries.len() > MAX_ENTRIES {
            queue.entries.pop_front();
        }
    }

    /// Removes the entries that are done when a point is reached, including those of other streams.
    fn reach(&mut self, point: Point) {
        let mut points = vec![point];
        while let Some(Point(stream, number)) = points.pop() {
            let Some(queue) = self.queues.get_mut(&stream) else { continue };
            while queue.entries.front().is_some_and(|(at, _)| *at <= number)
                && let Some((_, entry)) = queue.entries.pop_front()
            {
                if let Entry::After(other) = entry {
                    points.push(other);
                }
            }
        }
    }

    /// Returns, for each stream, the number of the last entry that is certainly done once all work on `stream` is done.
    fn reached_before(&self, stream: Stream) -> HashMap<Stream, u64> {
        let mut reached = HashMap::new();
        let mut points = vec![Point(stream, u64::MAX)];
        while let Some(Point(stream, number)) = points.pop() {
            if reached.get(&stream).is_some_and(|&known| known >= number) {
                continue;
            }
            reached.insert(stream, number);
            let entries = self.queues.get(&stream).into_iter().flat_map(|queue| &queue.entries);
            points.extend(entries.filter(|(at, _)| *at <= number).filter_map(|(_, entry)| match entry {
                Entry::After(point) => Some(*point),
                Entry::Uses(_) => None,
            }));
        }
        reached
    }

    /// Returns a stream with an entry that uses the memory and for which `counts` returns true, if there is one.
    fn first_use(&self, memory: &Range<u64>, counts: impl Fn(Stream, u64) -> bool) -> Option<Stream> {
        let uses = |(stream, queue): (&Stream, &Queue)| {
            let uses_memory = |(number, entry): &(u64, Entry)| match entry {
                Entry::Uses(used) => {
                    used.start < memory.end && memory.start < used.end && counts(*stream, *number)
                }
                Entry::After(_) => false,
            };
            queue.entries.iter().any(uses_memory).then_some(*stream)
        };
        self.queues.iter().find_map(uses)
    }
}
