//! The report on tasks as text.

use super::{HeldMemory, TaskRow, TasksReport};
use crate::layout::{Layout, MIN_NAME_CHARS, new_table, wrap};
use crate::top::NOT_ENDED_NOTE;
use crate::top::groups::OUTSIDE_TASKS;
use comfy_table::{Cell, CellAlignment, Table};
use memtrack_model::units::{human_bytes, human_count, printable, shorten_middle};
use std::fmt;

impl fmt::Display for TasksReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn bytes(held: &HeldMemory) -> Cell {
    right(held.live_bytes_error.as_bytes(held.live_bytes))
}

/// Formats a time in seconds, as in `1.25 s`.
fn time(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

impl TasksReport {
    /// Formats the report. If the layout has a width, names are shortened until the tables fit.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let Layout { width, .. } = layout.into();
        let total = self.totals.bytes_error.as_bytes(self.totals.allocated_bytes);
        let mut text = wrap(
            &format!("Memory of tasks on the {}, {}: {total}\n\n", self.device.name, self.at.name()),
            width,
        );
        text += &fit(width, |room| self.format_places(room));
        let more = self.places_in_all - self.places.len();
        if more > 0 {
            text += &format!("… and {more} more place{}\n", if more == 1 { "" } else { "s" });
        }
        let running = self.oldest.len();
        let lists =
            [("The largest tasks", &self.largest), ("The running tasks that began first", &self.oldest)];
        for (title, tasks) in lists.into_iter().filter(|(_, tasks)| !tasks.is_empty()) {
            text += &format!("\n{title}:\n\n{}", fit(width, |room| format_tasks(tasks, room)));
        }
        if running == 0 {
            text += "\nNo task was running.\n";
        }
        let mut notes = String::new();
        if self.places.iter().any(|place| place.by_unknown.blocks > 0) {
            notes += "State unknown: the memory of tasks that no longer have a row in the recorder's table (32,768 rows), or that \
                      began after the table was last written.\n";
        }
        if self.without_row > 0 {
            notes += &format!(
                "{} tasks began while the table was full of running tasks; they are counted, but not listed one by one.\n",
                human_count(self.without_row)
            );
        }
        if self.detection_limit_bytes > 0 {
            notes += &format!(
                "± and < hold with 95 % confidence: small blocks are sampled. A task with less than {} may be missing.\n",
                human_bytes(self.detection_limit_bytes)
            );
        }
        if !self.complete {
            notes += &format!("{NOT_ENDED_NOTE}\n");
        }
        if !notes.is_empty() {
            text += &format!("\n{}", wrap(&notes, width));
        }
        text
    }

    fn format_places(&self, room: usize) -> String {
        let has_unknown = self.places.iter().any(|place| place.by_unknown.blocks > 0);
        let mut table = new_table();
        let mut heads = vec!["Live", "by running", "by ended", "Begun", "Running"];
        if has_unknown {
            heads.insert(3, "state unknown");
        }
        let heads = heads.into_iter().map(|head| right(head.to_owned()));
        table.set_header(heads.chain([Cell::new("Task")]));
        for place in &self.places {
            let mut cells = vec![bytes(&place.held), bytes(&place.by_running), bytes(&place.by_ended)];
            if has_unknown {
                cells.push(bytes(&place.by_unknown));
            }
            cells.extend([place.begun, place.running].map(|count| right(human_count(count))));
            cells.push(Cell::new(shorten_middle(&printable(&place.label), room)));
            table.add_row(cells);
        }
        let empty = (0..if has_unknown { 5 } else { 4 }).map(|_| Cell::new(""));
        table.add_row([bytes(&self.outside)].into_iter().chain(empty).chain([Cell::new(OUTSIDE_TASKS)]));
        finish(&table)
    }
}

fn format_tasks(tasks: &[TaskRow], room: usize) -> String {
    let mut table = new_table();
    let heads = ["Live", "Blocks", "Began at", "Ended at", "Number"].map(|head| right(head.to_owned()));
    table.set_header(heads.into_iter().chain([Cell::new("Task")]));
    for task in tasks {
        let ended = task.ended_seconds.filter(|_| !task.running).map_or_else(|| "running".into(), time);
        let parent = task.parent.map_or(String::new(), |parent| format!(", made by {parent}"));
        let scope = task.scope.as_ref().map_or(String::new(), |scope| format!(", in {scope}"));
        let name = format!("{}{scope}{parent}", task.label);
        table.add_row([
            bytes(&task.held),
            right(task.held.blocks_error.as_count(task.held.blocks)),
            right(time(task.begun_seconds)),
            right(ended),
            right(task.number.to_string()),
            Cell::new(shorten_middle(&printable(&name), room)),
        ]);
    }
    finish(&table)
}

fn finish(table: &Table) -> String {
    table.trim_fmt() + "\n"
}

/// Returns a table whose names are shortened until it fits into the width. `format` is called with the most characters of a name.
fn fit(width: Option<usize>, format: impl Fn(usize) -> String) -> String {
    let full = format(usize::MAX);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let Some(width) = width.filter(|&width| widest(&full) > width) else { return full };
    let beside_names = widest(&format(1)).saturating_sub(1);
    format(width.saturating_sub(beside_names).max(MIN_NAME_CHARS))
}
