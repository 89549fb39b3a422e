//! The processes of a run as text: a table of the large processes, a line about the others, and the total of all processes.

use super::{DeviceMemory, Process, Processes};
use crate::layout::{Layout, MIN_LEGIBLE_NAME_CHARS, new_table, wrap};
use comfy_table::{Cell, CellAlignment};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::ProcessEnd;
use memtrack_model::units::{capitalised, human_bytes, human_share, printable, shorten_middle};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// Processes with a smaller share of the peak of all processes are summarized in one line.
const MIN_SHARE: f64 = 0.01;
/// The maximum number of programs to name in the line about small processes.
const MAX_NAMES: usize = 6;
/// The maximum number of spaces before a command line. Deeper processes are not indented further.
const MAX_INDENT: usize = 12;

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None, usize::MAX))
    }
}

impl Processes {
    /// Formats the report with at most `limit` processes: those with the largest share.
    pub fn to_text(&self, layout: impl Into<Layout>, limit: usize) -> String {
        let width = layout.into().width;
        let mut text = String::new();
        // Writing to a string cannot fail.
        let unfinished = if self.complete { "" } else { ", not completely recorded" };
        let pids: BTreeSet<u32> = self.processes.iter().map(|process| process.pid).collect();
        let count =
            if pids.len() == 1 { "1 process".to_owned() } else { format!("{} processes", pids.len()) };
        let _ = writeln!(text, "{count} in {:.3} s{unfinished}\n", self.seconds);
        let shown = self.shown(limit);
        let _ = writeln!(text, "{}\n", self.format_table(&shown, width));
        let others: Vec<&Process> =
            self.processes.iter().filter(|process| !shown.contains(&process.number)).collect();
        if !others.is_empty() {
            text.push_str(&wrap(&(self.format_others(&others) + "\n"), width));
        }
        if self.unrecorded > 0 {
            let processes = match self.unrecorded {
                1 => "1 more process is".to_owned(),
                more => format!("{more} more processes are"),
            };
            text.push_str(&wrap(&format!("{processes} not recorded\n"), width));
        }
        for device in &self.together {
            let peak = device.peak_error.as_bytes(device.peak_bytes);
            let when = device
                .peak_seconds
                .map_or(String::new(), |seconds| format!(", {seconds:.3} s after the start"));
            let line =
                format!("{}, all together: {peak} at the peak{when}\n", capitalised(&device.device.name));
            text.push_str(&wrap(&line, width));
        }
        if self.processes.len() > 1 {
            let line = "* marks the process that reports are about; --process PID selects another one, --all all of them together\n";
            text.push_str(&wrap(line, width));
        }
        text
    }

    /// Returns whether a process belongs in the table.
    fn is_large(process: &Process) -> bool {
        // The memory of a process whose events were removed is unknown and might be large.
        process.is_removed || process.share >= MIN_SHARE
    }

    /// Returns the numbers of the processes in the table.
    fn shown(&self, limit: usize) -> Vec<u32> {
        let mut shown: Vec<&Process> =
            self.processes.iter().filter(|process| process.is_main || Self::is_large(process)).collect();
        shown.sort_by(|a, b| {
            (b.is_main, b.share).partial_cmp(&(a.is_main, a.share)).unwrap_or(std::cmp::Ordering::Equal)
        });
        shown.truncate(limit.max(1));
        shown.into_iter().map(|process| process.number).collect()
    }

    fn format_table(&self, shown: &[u32], width: Option<usize>) -> String {
        let devices: Vec<&DeviceMemory> = self.together.iter().collect();
        let mut table = new_table();
        let mut headings = vec!["  Process".to_owned()];
        headings.extend(devices.iter().map(|device| format!("Peak of {}", device.device.name)));
        headings.extend(["Share", "Allocated", "Time", "End"].map(str::to_owned));
        let mut header: Vec<Cell> =
            headings.iter().map(|heading| Cell::new(heading).set_alignment(CellAlignment::Right)).collect();
        header.push(Cell::new("Command"));
        table.set_header(header);
        let rows: Vec<(Vec<String>, String)> = self
            .processes
            .iter()
            .filter(|process| shown.contains(&process.number))
            .map(|process| (self.format_cells(process, &devices), self.format_command(process, shown)))
            .collect();
        let widest = |column: usize| {
            let cells = rows.iter().map(|(cells, _)| cells[column].chars().count());
            cells.chain([headings[column].chars().count()]).max().unwrap_or(0) + 2
        };
        let numbers: usize = (0..headings.len()).map(widest).sum();
        let room = width.map(|width| width.saturating_sub(numbers + 1).max(MIN_LEGIBLE_NAME_CHARS));
        for (cells, command) in rows {
            let command = room.map_or(command.clone(), |room| shorten_middle(&command, room));
            let mut row: Vec<Cell> =
                cells.into_iter().map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right)).collect();
            row.push(Cell::new(command));
            table.add_row(row);
        }
        table.trim_fmt()
    }

    fn format_cells(&self, process: &Process, devices: &[&DeviceMemory]) -> Vec<String> {
        let of = |device: DeviceId| process.devices.iter().find(|memory| memory.id == device);
        let mark = if process.is_main { "* " } else { "" };
        let mut cells = vec![format!("{mark}{}", process.pid)];
        cells.extend(devices.iter().map(|device| match of(device.id) {
            Some(memory) => memory.peak_error.as_bytes(memory.peak_bytes),
            None => "—".to_owned(),
        }));
        cells.push(if process.is_removed { "—".to_owned() } else { human_share(process.share) });
        // A process in a recording that was cut off has no counts.
        let allocated: Option<u64> = process.devices.iter().map(|memory| memory.allocated_bytes).sum();
        let allocated = allocated.filter(|_| !process.is_removed);
        cells.push(allocated.map_or("—".to_owned(), human_bytes));
        cells.push(format!("{:.3} s", process.seconds));
        cells.push(format_end(process.end));
        cells
    }

    /// Describes the processes that are not in the table.
    fn format_others(&self, others: &[&Process]) -> String {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        others.iter().for_each(|process| *names.entry(&*process.name).or_default() += 1);
        let mut names: Vec<(&str, usize)> = names.into_iter().collect();
        names.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        let more = names.len().saturating_sub(MAX_NAMES);
        let named: Vec<String> = names
            .iter()
            .take(MAX_NAMES)
            .map(|(name, count)| format!("{} {count}", printable(name)))
            .collect();
        let more = if more > 0 { format!(" and {more} more programs") } else { String::new() };
        let largest = others.iter().map(|process| process.share).fold(0.0, f64::max);
        let least = if largest < MIN_SHARE {
            "each below 1 % of the peak of all".to_owned()
        } else {
            format!("each at most {} of the peak of all", human_share(largest))
        };
        let programs = if others.len() == 1 { "program" } else { "programs" };
        let peaks: f64 =
            others.iter().flat_map(|process| &process.devices).map(|memory| memory.peak_error.high).sum();
        let sum = match self.together[..] {
            [_] if peaks.is_finite() => {
                format!("; their peaks add up to {}", human_bytes(peaks.ceil() as u64))
            }
            _ => String::new(),
        };
        format!("{} more {programs}, {least}: {}{more}{sum}", others.len(), named.join(", "))
    }

    /// Formats the command line, indented by two spaces for each ancestor in the table.
    fn format_command(&self, process: &Process, shown: &[u32]) -> String {
        let find = |number: u32| self.processes.iter().find(|process| process.number == number);
        let (mut depth, mut at) = (0, process.parent);
        // A damaged file may have a cycle.
        for _ in 0..self.processes.len() {
            let Some(number) = at else { break };
            depth += usize::from(shown.contains(&number));
            at = find(number).and_then(|process| process.parent);
        }
        let indent = " ".repeat((2 * depth).min(MAX_INDENT));
        format!("{indent}{}", printable(&process.short_command_line))
    }
}

fn format_end(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Running => "runs".to_owned(),
        ProcessEnd::Ended => "ended".to_owned(),
        ProcessEnd::Code(code) => format!("exit {code}"),
        ProcessEnd::Signal(signal) => format!("signal {signal}"),
        ProcessEnd::Replaced => "exec".to_owned(),
    }
}
