//! The tasks of a program: futures that it tracks, such as one for each request. Blocks of the host heap belong to the task that
//! was polled when they were allocated.

use crate::event::{ScopeId, TaskId};
use std::collections::HashMap;

/// A place at which the program makes tasks: a line of its code, and a name if it gives one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPlace {
    /// The name that the program gives to the tasks, or the name of the `tracing` span in which it makes them; empty if neither
    /// is known.
    pub name: String,
    /// The path of the source file, as the compiler knows it; empty if the place stands in for places that did not fit.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The number of tasks that began.
    pub begun: u64,
    /// The number of those that have ended.
    pub ended: u64,
}

/// A task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The task's id.
    pub id: TaskId,
    /// The task that made it, or none.
    pub parent: TaskId,
    /// The scope in which it was made.
    pub scope: ScopeId,
    /// The time at which it was made, in ticks, or its first poll in the recording if it is older.
    pub begun_ticks: u64,
    /// The time at which it ended, because its future was ready or was dropped; 0 if it was running at the end.
    pub ended_ticks: u64,
}

impl Task {
    /// Returns whether the task was running at a moment, in ticks.
    pub fn is_running_at(&self, ticks: u64) -> bool {
        self.begun_ticks <= ticks && (self.ended_ticks == 0 || ticks < self.ended_ticks)
    }
}

/// The tasks of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTable {
    /// The places, by number ([`TaskId::place`]). Place 0 is outside all tasks.
    pub places: Vec<TaskPlace>,
    /// The tasks by id. Once the recorder's table is full, a new row replaces that of the task that ended first. [`TaskPlace`]
    /// counts all tasks.
    pub rows: Vec<Task>,
    /// The number of tasks that never had a row, because all tasks in the recorder's table were running.
    pub without_row: u64,
}

impl TaskTable {
    /// Returns whether the program has made no task.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.rows.is_empty()
    }

    /// Returns a task's place; `None` if the table does not contain it.
    pub fn place(&self, task: TaskId) -> Option<&TaskPlace> {
        self.places.get(task.place()).filter(|_| !task.is_none())
    }

    /// Returns the rows by id.
    pub fn by_id(&self) -> HashMap<TaskId, &Task> {
        self.rows.iter().map(|row| (row.id, row)).collect()
    }
}

impl TaskPlace {
    /// Returns the file's name and the line, as in `main.rs:41`; empty if the place is unknown.
    pub fn position(&self) -> String {
        let file = self.file.rsplit(['/', '\\']).next().unwrap_or_default();
        if file.is_empty() { String::new() } else { format!("{file}:{}", self.line) }
    }

    /// Returns the name and the position, as in `handle_request (main.rs:41)`, or the one that is known.
    pub fn label(&self) -> String {
        match (&*self.name, self.position()) {
            ("", position) if position.is_empty() => "(other places)".to_owned(),
            ("", position) => position,
            (name, position) if position.is_empty() => name.to_owned(),
            (name, position) => format!("{name} ({position})"),
        }
    }
}
