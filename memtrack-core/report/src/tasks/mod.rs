//! What the tasks of a program hold: by the place that made them, one by one, and those that never ended. `memtrack tasks` and
//! `Recording::tasks` call [`tasks`].
//!
//! A block belongs to the task that allocated it, whichever task has it now. So the bytes of tasks that have ended are what they
//! left behind: they handed it on, or nothing frees it. The rows and the memory outside all tasks add up to the live
//! bytes of the heap.
//!
//! **Why is the state of some tasks unknown?** The recorder has rows for 32,768 tasks. Once they are all used, the rows of tasks
//! that have ended are used again, so at the end of a recording a task without a row has ended, unless all rows were those of running
//! tasks. At an earlier moment, such a task may have been running.

mod text;

use crate::top::groups::task_label;
use crate::top::{By, TopOptions, Totals, top_with};
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::moment::Moment;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::{DeviceAnswer, serialize_as_name};
use memtrack_model::event::{DeviceId, TaskId};
use memtrack_model::snapshot::{Snapshot, Task};
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::collections::HashMap;

/// The memory of tasks, as `memtrack tasks --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TasksReport {
    /// The device, which is the host heap: other memory has no tasks.
    pub device: DeviceAnswer,
    /// The moment at which live memory is counted.
    pub at: Moment,
    /// The places that make tasks, by what their tasks hold, largest first.
    pub places: Vec<TaskPlaceRow>,
    /// The total number of such places.
    pub places_in_all: usize,
    /// The memory that was allocated outside all tasks.
    pub outside: HeldMemory,
    /// Sums over all places and the memory outside them, which are the recorder's own counts if it has them.
    pub totals: Totals,
    /// The tasks that hold most, largest first: by the lower ends of the intervals, where blocks were sampled.
    pub largest: Vec<TaskRow>,
    /// The running tasks that began first, oldest first: those that may never end.
    pub oldest: Vec<TaskRow>,
    /// The number of tasks that began while the recorder's table was full of running tasks. They are counted at their place, but
    /// are in neither list of tasks.
    pub without_row: u64,
    /// Because small blocks are sampled, a row with less than this many bytes has a chance of at least 5 % of being missing; 0 if
    /// every block was recorded.
    pub detection_limit_bytes: u64,
    /// Whether the recording is complete. If not, the numbers of tasks are those when they were last written.
    pub complete: bool,
}

/// The memory of some blocks that were live at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HeldMemory {
    /// The requested bytes of the blocks.
    pub live_bytes: u64,
    /// The margin of error of the bytes; null if they are exact.
    pub live_bytes_error: Estimate,
    /// The number of blocks.
    pub blocks: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub blocks_error: Estimate,
}

/// A place that makes tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TaskPlaceRow {
    /// The name of the tasks and the line that makes them, as in `handle_request (main.rs:41)`, or the one that is known.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub label: String,
    /// The path of the source file, as the compiler knows it; null if it is unknown.
    pub file: Option<String>,
    /// The line, from 1; null if it is unknown.
    pub line: Option<u32>,
    /// The number of tasks that began, by the end of the recording.
    pub begun: u64,
    /// The number of those that have ended, by the end of the recording.
    pub ended: u64,
    /// The number of those that have not ended.
    pub running: u64,
    /// The memory of all tasks of the place.
    pub held: HeldMemory,
    /// The memory of the tasks that were running at the moment.
    pub by_running: HeldMemory,
    /// The memory of the tasks that had ended: handed on, or left behind.
    pub by_ended: HeldMemory,
    /// The memory of tasks of which the table does not contain whether they were running.
    pub by_unknown: HeldMemory,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TaskRow {
    /// The number of the task, in the order in which tasks began.
    pub number: u64,
    /// The task's place, as in the list of places.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub label: String,
    /// The number of the task that made it; null if none did.
    pub parent: Option<u64>,
    /// The scope in which it was made; null outside all scopes.
    pub scope: Option<String>,
    /// When it began, in seconds since the recording began.
    pub begun_seconds: f64,
    /// When it ended; null if it has not ended.
    pub ended_seconds: Option<f64>,
    /// Whether it was running at the moment.
    pub running: bool,
    /// The memory that it allocated and that was live at the moment.
    pub held: HeldMemory,
}

/// Options for the report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TasksOptions {
    /// The moment at which live memory is counted.
    pub at: Moment,
    /// The maximum number of places, and of tasks in each list.
    pub limit: usize,
}

impl Default for TasksOptions {
    /// Returns options for the end of the recording and 20 rows.
    fn default() -> Self {
        Self { at: Moment::End, limit: 20 }
    }
}

impl TasksOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the moment at which live memory is counted.
    #[must_use]
    pub fn at(mut self, at: Moment) -> Self {
        self.at = at;
        self
    }

    /// Sets the maximum number of rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }
}

/// The state of a task at the moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    Unknown,
}

/// The sums of some blocks.
#[derive(Clone, Copy, Default)]
struct Sums {
    bytes: u64,
    blocks: f64,
    byte_sum: Sum,
    block_sum: Sum,
}

impl Sums {
    fn add(&mut self, lifetime: &Lifetime) {
        self.bytes = self.bytes.saturating_add(lifetime.bytes);
        self.blocks += lifetime.blocks;
        self.byte_sum.add(lifetime.size_bytes as f64, lifetime.blocks);
        self.block_sum.add(1.0, lifetime.blocks);
    }

    fn held(&self, precision: &Precision, ends: bool) -> HeldMemory {
        HeldMemory {
            live_bytes: self.bytes,
            live_bytes_error: precision.bytes(&self.byte_sum).with_completeness(ends),
            blocks: self.blocks.round() as u64,
            blocks_error: precision.blocks(&self.block_sum).with_completeness(ends),
        }
    }
}

/// Adds up what the tasks of a recording hold. Returns `None` if the recording has no tasks.
pub fn tasks(snapshot: &Snapshot, symbols: &mut Symbolizer, options: TasksOptions) -> Option<TasksReport> {
    let table = &snapshot.tasks;
    if table.is_empty() && snapshot.events.tasks.is_empty() {
        return None;
    }
    let device = DeviceId::HOST;
    // The totals are those of a ranking, which uses the recorder's own counts where it has them.
    let top_options = TopOptions::new().limit(0).at(Some(options.at));
    let top = top_with(snapshot, symbols, By::Task, device, &top_options);
    let row = if options.at == Moment::Peak { top.peak.row } else { options.at.row() };
    let last = snapshot.events.len().checked_sub(1);
    let ticks = match row {
        // The end is after all events, and after tasks that ended since.
        Some(row) if Some(row) > last || options.at == Moment::End => u64::MAX,
        Some(row) => snapshot.events.ticks[row],
        None => 0,
    };
    let rows = table.by_id();
    let is_end = ticks == u64::MAX && snapshot.meta.complete;
    let state = |task: TaskId| match rows.get(&task) {
        Some(row) if row.is_running_at(ticks) => State::Running,
        Some(_) => State::Ended,
        None if is_end && table.without_row == 0 => State::Ended,
        None => State::Unknown,
    };
    let lifetimes = lifetimes(snapshot, device);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let ends = snapshot.meta.complete || options.at != Moment::End;
    let mut outside = Sums::default();
    let mut by_task: HashMap<TaskId, Sums> = HashMap::new();
    let mut by_place: HashMap<usize, [Sums; 4]> = HashMap::new();
    // Places that are not in the table are one row, so that a damaged file does not make a row for each block.
    let unknown_place = table.places.len().max(1);
    for lifetime in lifetimes.iter().filter(|lifetime| lifetime.is_live_after(row)) {
        let task = lifetime.task(snapshot);
        if task.is_none() {
            outside.add(lifetime);
            continue;
        }
        by_task.entry(task).or_default().add(lifetime);
        let place = by_place.entry(task.place().clamp(1, unknown_place)).or_default();
        place[0].add(lifetime);
        place[1 + state(task) as usize].add(lifetime);
    }
    let mut places: Vec<TaskPlaceRow> = (1..=unknown_place)
        .filter_map(|number| {
            let place = table.places.get(number);
            let sums = by_place.get(&number);
            if sums.is_none() && place.is_none_or(|place| place.begun == 0) {
                return None;
            }
            let [all, running, ended, unknown] =
                sums.copied().unwrap_or_default().map(|sums| sums.held(&precision, ends));
            let (begun, done) = place.map_or((0, 0), |place| (place.begun, place.ended.min(place.begun)));
            Some(TaskPlaceRow {
                label: task_label(snapshot, TaskId::new(number as u32, 1)),
                file: place.map(|place| place.file.clone()).filter(|file| !file.is_empty()),
                line: place.map(|place| place.line).filter(|&line| line > 0),
                begun,
                ended: done,
                running: begun - done,
                held: all,
                by_running: running,
                by_ended: ended,
                by_unknown: unknown,
            })
        })
        .collect();
    places.sort_by(|a, b| {
        let key = |row: &TaskPlaceRow| std::cmp::Reverse((row.held.live_bytes, row.begun));
        key(a).cmp(&key(b)).then_with(|| a.label.cmp(&b.label))
    });
    let places_in_all = places.len();
    places.truncate(options.limit);
    let seconds = |ticks| snapshot.clock.seconds_since_start(ticks);
    let task_row = |task: &Task| {
        let scope = snapshot.scopes.place(task.scope).full_name();
        TaskRow {
            number: task.id.number(),
            label: task_label(snapshot, task.id),
            parent: Some(task.parent.number()).filter(|_| !task.parent.is_none()),
            scope: Some(scope).filter(|scope| !scope.is_empty()),
            begun_seconds: seconds(task.begun_ticks),
            ended_seconds: (task.ended_ticks > 0).then(|| seconds(task.ended_ticks)),
            running: task.is_running_at(ticks),
            held: by_task.get(&task.id).copied().unwrap_or_default().held(&precision, ends),
        }
    };
    // By what they hold with certainty: a small block that was sampled stands for many, but hardly for those of one task.
    let certain = |sums: &Sums| precision.bytes(&sums.byte_sum).low as u64;
    let mut holders: Vec<(&Task, [u64; 2])> =
        by_task.iter().filter_map(|(id, sums)| Some((*rows.get(id)?, [certain(sums), sums.bytes]))).collect();
    holders.sort_by_key(|(task, bytes)| (std::cmp::Reverse(*bytes), task.id.number()));
    let mut running: Vec<&Task> = table.rows.iter().filter(|row| row.is_running_at(ticks)).collect();
    running.sort_by_key(|task| (task.begun_ticks, task.id.number()));
    Some(TasksReport {
        at: options.at,
        places,
        places_in_all,
        outside: outside.held(&precision, ends),
        totals: top.totals,
        largest: holders.iter().take(options.limit).map(|(task, _)| task_row(task)).collect(),
        oldest: running.iter().take(options.limit).map(|task| task_row(task)).collect(),
        without_row: table.without_row,
        detection_limit_bytes: top.detection_limit_bytes,
        complete: top.complete,
        device: top.device,
    })
}
