//! Which streams there are, and what is queued on them that nobody has waited for. The mock has done it when the call
//! returns, but a program cannot know: the driver lets go of memory at once that is unmapped, also while work uses it. So
//! whoever does that here is ended, with a word.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::handle::{self, Tag};
use crate::report::STREAMS;
use crate::status::{Answer, Status};

/// `CU_STREAM_NON_BLOCKING`: has nothing to do with the default stream.
const NON_BLOCKING: u32 = 1;
/// Entries of a stream that are kept; of more, the oldest count as done.
const MOST: usize = 1 << 12;

/// A stream: its context, and its handle as a number.
type Stream = (u16, usize);

/// A point in a stream: everything up to the entry of that number.
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
pub(crate) struct All {
    /// Those that were made and not destroyed, with their flags.
    made: HashMap<Stream, u32>,
    /// Those with work; a stream that is destroyed leaves it behind.
    queues: HashMap<Stream, Queue>,
}

/// All of it, locked. No other lock is taken while it is held.
pub(crate) fn all() -> MutexGuard<'static, Option<All>> {
    static ALL: Mutex<Option<All>> = Mutex::new(None);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(act: impl FnOnce(&mut All) -> T) -> T {
    act(all().get_or_insert_default())
}

/// A stream was made.
pub(crate) fn made(stream: *mut c_void, context: u16, flags: u32) {
    with(|all| all.made.insert((context, stream.addr()), flags));
    STREAMS.fetch_add(1, Ordering::Relaxed);
}

/// A stream is destroyed. What is queued on it goes on.
///
/// # Errors
/// Invalid handle for what is no stream any more.
pub(crate) fn destroyed(stream: *mut c_void) -> Answer {
    let (context, _) = handle::read(Tag::Stream, stream)?;
    with(|all| all.made.remove(&(context, stream.addr()))).ok_or(Status::INVALID_HANDLE)?;
    STREAMS.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Whether a stream was made and not destroyed.
pub(crate) fn is_stream(stream: *mut c_void, context: u16) -> bool {
    with(|all| all.made.contains_key(&(context, stream.addr())))
}

fn is_default(handle: usize) -> bool {
    handle <= 1
}

fn name(context: Context, stream: *mut c_void) -> Stream {
    let handle = stream.addr();
    (context.number, if is_default(handle) { 0 } else { handle })
}

/// Work on a stream uses memory.
pub(crate) fn queued(context: Context, stream: *mut c_void, address: u64, bytes: usize) {
    let stream = name(context, stream);
    with(|all| all.add(stream, Entry::Uses(address..address.saturating_add(bytes as u64))));
}

/// Where a stream has come to.
pub(crate) fn point(context: Context, stream: *mut c_void) -> Point {
    let stream = name(context, stream);
    with(|all| Point(stream, all.queues.get(&stream).map_or(0, |queue| queue.last)))
}

/// What a stream does next comes after a point.
pub(crate) fn wait(context: Context, stream: *mut c_void, point: Point) {
    let stream = name(context, stream);
    with(|all| all.add(stream, Entry::After(point)));
}

/// A point was waited for.
pub(crate) fn reached(point: Point) {
    with(|all| all.reach(point));
}

/// A stream was waited for.
pub(crate) fn stream_done(context: Context, stream: *mut c_void) {
    let stream = name(context, stream);
    with(|all| {
        all.reach(Point(stream, u64::MAX));
        if stream.1 == 0 {
            let blocks = |other: &Stream| {
                other.0 == stream.0 && all.made.get(other).is_none_or(|flags| flags & NON_BLOCKING == 0)
            };
            let blocking: Vec<Stream> = all.queues.keys().copied().filter(blocks).collect();
            blocking.into_iter().for_each(|other| all.reach(Point(other, u64::MAX)));
        }
    });
}

/// Everything of a context was waited for.
pub(crate) fn context_done(context: u16) {
    with(|all| {
        let streams: Vec<Stream> = all.queues.keys().copied().filter(|stream| stream.0 == context).collect();
        streams.into_iter().for_each(|stream| all.reach(Point(stream, u64::MAX)));
    });
}

/// A context ends, with its streams.
pub(crate) fn context_ended(context: u16) {
    context_done(context);
    let ended = with(|all| {
        let before = all.made.len();
        all.made.retain(|stream, _| stream.0 != context);
        before - all.made.len()
    });
    STREAMS.fetch_sub(ended as _, Ordering::Relaxed);
}

/// Memory goes away at once.
pub(crate) fn goes(call: &str, address: u64, bytes: u64) {
    let used = with(|all| all.first_use(&(address..address.saturating_add(bytes)), |_, _| true));
    refuse(call, address, bytes, used);
}

/// Memory goes where a stream has come to. The default stream is behind all others, but for those that it has nothing to
/// do with, which are let pass.
pub(crate) fn goes_on(call: &str, address: u64, bytes: u64, context: Context, stream: *mut c_void) {
    let stream = name(context, stream);
    if stream.1 == 0 {
        return;
    }
    let used = with(|all| {
        let before = all.before(stream);
        all.first_use(&(address..address.saturating_add(bytes)), |other, number| {
            other != stream && other.1 != 0 && before.get(&other).is_none_or(|&reached| reached < number)
        })
    });
    refuse(call, address, bytes, used);
}

fn refuse(call: &str, address: u64, bytes: u64, used: Option<Stream>) {
    if let Some((_, stream)) = used {
        eprintln!(
            "mock CUDA driver: {call} of {bytes} bytes at {address:#x}, which work on stream {stream:#x} uses that \
             nobody has waited for"
        );
        std::process::abort();
    }
}

impl All {
    fn add(&mut self, stream: Stream, entry: Entry) {
        let queue = self.queues.entry(stream).or_default();
        queue.last += 1;
        queue.entries.push_back((queue.last, entry));
        if queue.entries.len() > MOST {
            queue.entries.pop_front();
        }
    }

    /// Takes out what is done when a point is reached, in other streams too.
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

    /// How far other streams have come when this one has come to its end.
    fn before(&self, stream: Stream) -> HashMap<Stream, u64> {
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

    /// A stream with work in memory that counts.
    fn first_use(&self, memory: &Range<u64>, counts: impl Fn(Stream, u64) -> bool) -> Option<Stream> {
        let uses = |(stream, queue): (&Stream, &Queue)| {
            let of_entry = |(number, entry): &(u64, Entry)| match entry {
                Entry::Uses(used) => {
                    used.start < memory.end && memory.start < used.end && counts(*stream, *number)
                }
                Entry::After(_) => false,
            };
            queue.entries.iter().any(of_entry).then_some(*stream)
        };
        self.queues.iter().find_map(uses)
    }
}
