//! Moments that the program marks ([`mark`](crate::record::mark)). At each mark, a step, request or other interval of the program ends and the
//! next one begins. Reports show the memory that each interval left behind.
//!
//! The newest 65,536 marks are kept, protected by a separate lock that is held while one row is copied; the file of a
//! stream also contains the earlier marks. Marks are stamped like events (greater than the thread's newest stamp).

use super::fork::ForkCell;
use super::hooks::Hook;
use crate::scope::intern_name;
use crate::shared_memory::{self, log::Record};
use crate::{internal_bytes, reentry};
use memtrack_model::event::ThreadId;
use memtrack_model::snapshot::Marks;
use std::sync::Mutex;

/// The maximum number of marks that are kept.
const MAX_MARKS: usize = 1 << 16;

/// The maximum memory of the marks.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = MAX_MARKS * size_of::<LoggedMark>();

#[derive(Clone, Copy)]
struct LoggedMark {
    ticks: u64,
    thread: ThreadId,
    name: &'static str,
}

/// The newest rows, as a ring.
struct Log {
    /// Has capacity for all rows that are kept, so that it never grows. The row with number `n` is at `n % max_rows`.
    rows: Vec<LoggedMark>,
    max_rows: usize,
    /// The total number of rows added so far.
    count: u64,
}

static LOG: ForkCell<Mutex<Log>> = ForkCell::new(|| Mutex::new(Log::new(MAX_MARKS)));

impl Log {
    fn new(max_rows: usize) -> Self {
        internal_bytes::add(max_rows * size_of::<LoggedMark>());
        Self { rows: Vec::with_capacity(max_rows), max_rows, count: 0 }
    }

    fn push(&mut self, row: LoggedMark) {
        match self.rows.len() < self.max_rows {
            true => self.rows.push(row),
            false => self.rows[(self.count % self.max_rows as u64) as usize] = row,
        }
        self.count += 1;
    }

    /// Returns the numbers of the rows that are kept.
    fn kept(&self) -> std::ops::Range<u64> {
        self.count - self.rows.len() as u64..self.count
    }

    /// Returns the row with a number in [`Self::kept`].
    fn row(&self, number: u64) -> LoggedMark {
        self.rows[(number % self.max_rows as u64) as usize]
    }
}

/// Does the same as [`mark`](crate::record::mark), which has checked that events are recorded.
#[inline(never)]
pub(crate) fn mark_now(name: &str) {
    let name = intern_name(name);
    let Some(hook) = Hook::enter() else { return };
    let inside = *hook;
    inside.with_room(move || {
        let ticks = inside.thread.stamp();
        let row = LoggedMark { ticks, thread: inside.thread.thread_id(), name };
        shared_memory::append(&Record::Mark(ticks, row.thread, name.into()));
        LOG.lock().push(row);
    });
}

/// Returns the marks stamped `since..=moment`.
pub(super) fn between(since: u64, moment: u64) -> Marks {
    let is_in = |row: &LoggedMark| row.ticks >= since && row.ticks <= moment;
    let (rows, left_out) = copy_since(0);
    let mut marks = to_marks(rows.into_iter().filter(is_in), left_out);
    marks.rows.sort_by_key(|mark| mark.ticks);
    marks
}

/// Returns the marks after the first `seen`, and the number of marks so far.
pub(super) fn since(seen: u64) -> (Marks, u64) {
    let (rows, left_out) = copy_since(seen);
    let now = seen + left_out + rows.len() as u64;
    (to_marks(rows.into_iter(), left_out), now)
}

/// Returns the rows after the first `seen`, and the number of such rows that were already dropped.
fn copy_since(seen: u64) -> (Vec<LoggedMark>, u64) {
    if !LOG.is_made() {
        return (Vec::new(), 0);
    }
    let _inside = reentry::enter();
    // The memory is allocated before the log is locked; rows that are added meanwhile are left to the next call.
    let wanted = LOG.lock().kept().end.saturating_sub(seen).min(MAX_MARKS as u64) as usize;
    let mut rows = Vec::with_capacity(wanted);
    let log = LOG.lock();
    let kept = log.kept();
    let first = kept.start.max(seen);
    rows.extend((first..kept.end).take(wanted).map(|number| log.row(number)));
    (rows, first - seen)
}

fn to_marks(rows: impl Iterator<Item = LoggedMark>, left_out: u64) -> Marks {
    let mut marks = Marks { left_out, ..Marks::default() };
    rows.for_each(|row| marks.push(row.ticks, row.thread, row.name));
    marks
}

/// Removes all marks.
pub(super) fn clear() {
    if LOG.is_made() {
        let mut log = LOG.lock();
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
