//! The table of tasks. It has room for 32,768: once it is full, a new row replaces that of the task that ended first, so running
//! tasks keep theirs; if all of them are running, the new task has none, and is counted. Sixteen shards have a lock each, which
//! is held while one row is copied and nothing is allocated. Tasks are distributed by their number, so that threads that
//! make tasks at the same time rarely wait for each other.

use super::places;
use crate::events::{ForkCell, Hook};
use crate::{internal_bytes, reentry, scope};
use memtrack_model::event::TaskId;
use memtrack_model::snapshot::{Task, TaskTable};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;
/// The maximum number of rows of a shard.
const ROWS: usize = 1 << 11;

const BYTES: usize = SHARDS * ROWS * (size_of::<Task>() + size_of::<u32>());

/// The maximum memory of the table.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = BYTES;

/// The rows of a shard. Both lists have capacity for all rows, so that they never grow.
pub(super) struct Shard {
    rows: Vec<Task>,
    max_rows: usize,
    /// The indices of the rows of tasks that have ended, in that order.
    ended: VecDeque<u32>,
    without_row: u64,
}

static TABLE: ForkCell<[Mutex<Shard>; SHARDS]> = ForkCell::new(|| {
    internal_bytes::add(BYTES);
    std::array::from_fn(|_| Mutex::new(Shard::new(ROWS)))
});

/// The number of tasks that have begun in this process. It is never reset, so that an id is never reused.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Shard {
    pub(super) fn new(max_rows: usize) -> Self {
        let (rows, ended) = (Vec::with_capacity(max_rows), VecDeque::with_capacity(max_rows));
        Self { rows, max_rows, ended, without_row: 0 }
    }

    /// Adds a row. Returns its index, or `None` if the rows of all other tasks are of running ones.
    pub(super) fn begin(&mut self, row: Task) -> Option<u32> {
        if self.rows.len() < self.max_rows {
            self.rows.push(row);
            return Some(self.rows.len() as u32 - 1);
        }
        let Some(index) = self.ended.pop_front() else {
            self.without_row += 1;
            return None;
        };
        self.rows[index as usize] = row;
        Some(index)
    }

    /// Notes the end of a task whose row has this index, unless the row is that of another task by now.
    pub(super) fn end(&mut self, index: u32, id: TaskId, ticks: u64) {
        let row = self.rows.get_mut(index as usize);
        if let Some(row) = row.filter(|row| row.id == id && row.ended_ticks == 0) {
            row.ended_ticks = ticks;
            self.ended.push_back(index);
        }
    }

    pub(super) fn rows(&self) -> &[Task] {
        &self.rows
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.ended.clear();
        self.without_row = 0;
    }
}

fn shard_of(id: TaskId) -> MutexGuard<'static, Shard> {
    lock(&TABLE.get()[id.number() as usize % SHARDS])
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunTask {
    pub(super) id: TaskId,
    /// The index of the row in its shard, if the task has one.
    row: Option<u32>,
}

/// Begins a task at a place. Returns `None` inside memtrack, or if nothing is recorded.
pub(super) fn begin(place: u32) -> Option<BegunTask> {
    let hook = Hook::enter()?;
    let inside = *hook;
    inside.with_room(move || {
        places::count_begun(place as usize);
        let id = TaskId::new(place, NUMBER.fetch_add(1, Ordering::Relaxed) + 1);
        let parent = TaskId(reentry::task());
        let begun_ticks = inside.thread.stamp();
        let row = Task { id, parent, scope: scope::current_id(), begun_ticks, ended_ticks: 0 };
        Some(BegunTask { id, row: shard_of(id).begin(row) })
    })
}

/// Ends a task of this session.
pub(super) fn end(task: BegunTask) {
    places::count_ended(task.id.place());
    let (Some(row), Some(hook)) = (task.row, Hook::enter()) else { return };
    let inside = *hook;
    inside.with_room(move || {
        let ticks = inside.thread.stamp();
        shard_of(task.id).end(row, task.id, ticks);
    });
}

/// Returns the tasks that began up to a moment, and their places. The counts of places may be slightly newer.
pub(crate) fn until(moment: u64) -> TaskTable {
    if !TABLE.is_made() {
        return TaskTable::default();
    }
    let _inside = reentry::enter();
    let (mut rows, mut without_row) = (Vec::new(), 0);
    for shard in TABLE.get() {
        // The memory is allocated before the shard is locked.
        rows.reserve(ROWS);
        let shard = lock(shard);
        rows.extend_from_slice(shard.rows());
        without_row += shard.without_row;
    }
    rows.retain(|row| row.begun_ticks <= moment);
    for row in rows.iter_mut().filter(|row| row.ended_ticks > moment) {
        row.ended_ticks = 0;
    }
    rows.sort_unstable_by_key(|row| row.id.number());
    let places = places::all();
    if rows.is_empty() && places.iter().all(|place| place.begun == 0) {
        return TaskTable::default();
    }
    TaskTable { places, rows, without_row }
}

/// Returns the tasks that run now, and all places, for a file that is written while the program runs.
pub(crate) fn running() -> TaskTable {
    let mut tasks = until(u64::MAX);
    tasks.rows.retain(|row| row.ended_ticks == 0);
    tasks
}

/// Removes all tasks. Places keep their numbers.
pub(crate) fn clear() {
    places::clear_counts();
    if TABLE.is_made() {
        TABLE.get().iter().for_each(|shard| lock(shard).clear());
    }
}
