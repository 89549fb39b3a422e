//! Moments that the program marks ([`mark`]): where one of its steps, requests or other intervals ends and the next
//! begins. Reports then show the memory that each of them left behind.
//!
//! The newest 65,536 are kept, behind a separate lock that is held while one row is copied; a stream has the earlier
//! ones in its file. They have stamps of the same kind as events (greater than the thread's newest).

use super::clock;
use super::fork::ForkCell;
use super::hooks::Hook;
use super::order::stamp;
use crate::scope::kept_name;
use crate::{internal_bytes, reentry, switch};
use memtrack_model::event::ThreadId;
use memtrack_model::snapshot::Marks;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of marks that are kept.
const MOST: usize = 1 << 16;

/// The most memory that they can take.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = MOST * size_of::<LoggedMark>();

#[derive(Clone, Copy)]
struct LoggedMark {
    ticks: u64,
    thread: ThreadId,
    name: &'static str,
}

/// The newest rows, as a ring.
struct Log {
    /// Has room for all rows that are kept, so that it never grows. The row with number `n` is at `n % most`.
    rows: Vec<LoggedMark>,
    most: usize,
    /// The number of rows that were ever added.
    count: u64,
}

static LOG: ForkCell<Mutex<Log>> = ForkCell::new(|| Mutex::new(Log::new(MOST)));

impl Log {
    fn new(most: usize) -> Self {
        internal_bytes::add(most * size_of::<LoggedMark>());
        Self { rows: Vec::with_capacity(most), most, count: 0 }
    }

    fn push(&mut self, row: LoggedMark) {
        match self.rows.len() < self.most {
            true => self.rows.push(row),
            false => self.rows[(self.count % self.most as u64) as usize] = row,
        }
        self.count += 1;
    }

    /// Returns the numbers of the rows that are kept.
    fn kept(&self) -> std::ops::Range<u64> {
        self.count - self.rows.len() as u64..self.count
    }

    /// Returns the row with a number that is [kept](Self::kept).
    fn row(&self, number: u64) -> LoggedMark {
        self.rows[(number % self.most as u64) as usize]
    }
}

fn locked() -> MutexGuard<'static, Log> {
    LOG.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks this moment: one step, request or other interval with that name ends here and the next begins.
/// `memtrack leaks --per NAME` shows the memory that each of them left behind, and distinguishes memory that
/// grows from one to the next from memory that is merely alive.
///
/// Moments with one name divide the time of the whole program: what other threads allocate meanwhile counts too. Mark
/// where little is in flight, as at the end of a step. While nothing is monitored this is a load and a branch;
/// otherwise it reads the clock, and a lock is held while one row is copied. The newest 65,536 moments are kept, and
/// all of them if the recording is streamed. Names are kept for good, at most 1 KiB of each: name the kind of
/// interval, not the instance (`request`, not `request 4711`).
///
/// ```
/// # use memtrack_recorder::recorder::mark;
/// # fn train_step() {}
/// for _ in 0..100 {
///     train_step();
///     mark("step");
/// }
/// ```
#[inline]
pub fn mark(name: &str) {
    if switch::is_on(switch::EVENTS) {
        mark_now(name);
    }
}

#[inline(never)]
fn mark_now(name: &str) {
    let name = kept_name(name);
    let Some(hook) = Hook::enter() else { return };
    // Checked again, now that a collector can see that this thread is active.
    if !switch::is_on(switch::EVENTS) {
        return;
    }
    let inside = *hook;
    inside.with_room(move || {
        let newest = &inside.thread.local().newest_ticks;
        let ticks = stamp(clock::ticks_after(newest.get()), 0, newest.get());
        newest.set(ticks);
        let row = LoggedMark { ticks, thread: inside.thread.thread(), name };
        locked().push(row);
    });
}

/// Returns the marks of a session, up to a moment.
pub(super) fn between(since: u64, moment: u64) -> Marks {
    let is_in = |row: &LoggedMark| row.ticks >= since && row.ticks <= moment;
    let (rows, left_out) = copied(0);
    let mut marks = named(rows.into_iter().filter(is_in), left_out);
    marks.rows.sort_by_key(|mark| mark.ticks);
    marks
}

/// Returns the marks after the first `seen`, and how many there are now.
pub(super) fn since(seen: u64) -> (Marks, u64) {
    let (rows, left_out) = copied(seen);
    let now = seen + left_out + rows.len() as u64;
    (named(rows.into_iter(), left_out), now)
}

/// Returns the rows after the first `seen`, and how many of those were dropped already.
fn copied(seen: u64) -> (Vec<LoggedMark>, u64) {
    if !LOG.is_made() {
        return (Vec::new(), 0);
    }
    let _inside = reentry::enter();
    // Room is made before the lock is taken; rows that come meanwhile are for the next call.
    let wanted = locked().kept().end.saturating_sub(seen).min(MOST as u64) as usize;
    let mut rows = Vec::with_capacity(wanted);
    let log = locked();
    let kept = log.kept();
    let first = kept.start.max(seen);
    rows.extend((first..kept.end).take(wanted).map(|number| log.row(number)));
    (rows, first - seen)
}

fn named(rows: impl Iterator<Item = LoggedMark>, left_out: u64) -> Marks {
    let mut marks = Marks { left_out, ..Marks::default() };
    rows.for_each(|row| marks.push(row.ticks, row.thread, row.name));
    marks
}

/// Removes all marks.
pub(super) fn clear() {
    if LOG.is_made() {
        let mut log = locked();
        log.rows.clear();
        log.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rows_stay_and_keep_their_numbers() {
        let mut log = Log::new(4);
        for ticks in 0..10 {
            log.push(LoggedMark { ticks, thread: ThreadId(1), name: "step" });
        }
        assert_eq!(log.kept(), 6..10);
        assert_eq!(log.kept().map(|number| log.row(number).ticks).collect::<Vec<_>>(), [6, 7, 8, 9]);
        assert!(log.rows.capacity() == 4 && log.rows.len() == 4);
    }
}
