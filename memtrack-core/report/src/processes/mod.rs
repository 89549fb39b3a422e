//! The processes of a run: the peak, the allocations and the end of each process, and the peak of all processes together, to
//! which the memory limit of a container applies.

mod text;

use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::lifetimes::lifetimes;
use memtrack_blocks::peak::Peak;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{Clock, ProcessEnd, ProcessRow, Snapshot, main_process};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The relative error above which an estimate would be shown as an upper bound.
const MAX_ERROR: f64 = memtrack_blocks::estimate::MAX_RELATIVE_ERROR;

/// The processes of a run, with their memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Processes {
    /// Whether the recording is complete: the run was ended, and all of its processes are in the file.
    pub complete: bool,
    /// The number of the run's processes that were not recorded.
    pub unrecorded: u64,
    /// The time in seconds from the beginning of the first process to the end of the last one, as far as it was recorded.
    pub seconds: f64,
    /// The memory of all processes together on each device. Memory of a process that has ended no longer counts.
    pub together: Vec<DeviceMemory>,
    /// The processes, each before those that it started. A process that executed several programs has a row for each of them.
    pub processes: Vec<Process>,
}

/// A process of the run, with its memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Process {
    /// The process id.
    #[serde(rename = "process")]
    pub pid: u32,
    /// The process id of the parent at the time when the process began.
    #[serde(rename = "parent")]
    pub parent_pid: u32,
    /// The number of this row. Rows are numbered in the order in which the processes began to allocate.
    pub number: u32,
    /// The number of the row of the process that started this one; `None` if that process was not recorded.
    #[serde(skip)]
    pub parent: Option<u32>,
    /// The path of the process's program.
    pub program: String,
    /// The name of the program: the last part of its path.
    #[serde(skip)]
    pub name: String,
    /// The command line of the process, cut at 1 KiB; empty if it is not known.
    pub command_line: Vec<String>,
    /// The command line without the folders of its program.
    #[serde(skip)]
    pub short_command_line: String,
    /// Whether the process is a fork that has not executed a program of its own.
    #[serde(rename = "forked")]
    pub is_forked: bool,
    /// Whether reports are about this process unless another one is chosen.
    #[serde(rename = "main")]
    pub is_main: bool,
    /// Whether the memory of the process is unknown because its events are in parts of the recording that were removed
    /// (`--max-bytes`) or lost.
    #[serde(rename = "removed")]
    pub is_removed: bool,
    /// How the process ended.
    #[serde(flatten, serialize_with = "serialize_end")]
    #[cfg_attr(feature = "schema", schemars(with = "EndForm"))]
    pub end: ProcessEnd,
    /// The time in seconds from the beginning of the run to the beginning of the process.
    pub begun_seconds: f64,
    /// The time in seconds for which the process ran, as far as is known.
    pub seconds: f64,
    /// The process's peak as a share of the peak of all processes together, from 0 to 1, on the device where this share is
    /// largest.
    pub share: f64,
    /// The memory of the process on each device.
    pub devices: Vec<DeviceMemory>,
}

/// How a process ended: in JSON, an exit code and a signal have keys of their own, which are always present.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct EndForm {
    /// How the process ended: `running` (when the recording was read or cut off), `exit`, `signal`, `exec` (it executed another
    /// program), or `unknown`.
    end: &'static str,
    /// The exit code of the process; null unless `end` is `exit`.
    exit_code: Option<i32>,
    /// The number of the signal that ended the process; null unless `end` is `signal`.
    signal: Option<i32>,
}

fn serialize_end<S: Serializer>(end: &ProcessEnd, to: S) -> Result<S::Ok, S::Error> {
    let (end, exit_code, signal) = match *end {
        ProcessEnd::Running => ("running", None, None),
        ProcessEnd::Ended => ("unknown", None, None),
        ProcessEnd::Code(code) => ("exit", Some(code), None),
        ProcessEnd::Signal(signal) => ("signal", None, Some(signal)),
        ProcessEnd::Replaced => ("exec", None, None),
    };
    EndForm { end, exit_code, signal }.serialize(to)
}

/// The memory of one process, or of all processes together, on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's id in the recording.
    #[serde(skip)]
    pub id: DeviceId,
    /// The peak: the largest number of bytes that were live at once.
    pub peak_bytes: u64,
    /// The margin of error of the peak; null if it is exact.
    #[serde(rename = "peak_bytes_error")]
    pub peak_error: Estimate,
    /// The time in seconds from the beginning of the run to the peak; null if it is not known.
    pub peak_seconds: Option<f64>,
    /// The total bytes of all allocations, as counted by the recorder; null if its counts are missing.
    pub allocated_bytes: Option<u64>,
    /// The number of all allocations, as counted by the recorder; null if its counts are missing.
    pub allocations: Option<u64>,
}

impl Processes {
    /// Computes the memory of each process, and of all processes together. `merge` combines their snapshots into one
    /// (`memtrack_file::merge`).
    ///
    /// `removed` has the numbers of the processes whose events are no longer in the file. `unrecorded` is the number of
    /// processes that the file does not contain at all.
    pub fn of(
        snapshots: Vec<(ProcessRow, Snapshot)>,
        removed: &[u32],
        unrecorded: u64,
        merge: impl FnOnce(Vec<(ProcessRow, Snapshot)>) -> Snapshot,
    ) -> Self {
        let rows: Vec<ProcessRow> = snapshots.iter().map(|(row, _)| row.clone()).collect();
        let main = main_process(&rows);
        let is_whole = removed.is_empty() && unrecorded == 0;
        let complete = is_whole && snapshots.iter().all(|(_, snapshot)| snapshot.meta.complete);
        let clocks = snapshots.iter().map(|(_, snapshot)| snapshot.clock);
        let clock = clocks.reduce(Clock::spanning).unwrap_or_default();
        let begun = rows.iter().map(|row| row.begun_ticks).min().unwrap_or(0);
        let mut all: BTreeMap<u32, Process> = BTreeMap::new();
        let mut ended = begun;
        for (row, snapshot) in &snapshots {
            // For a process that is still running, the newest event or clock reading is the last known moment.
            let last = if row.end == ProcessEnd::Running { snapshot.clock.last.0 } else { row.ended_ticks };
            ended = ended.max(last);
            let seconds = |ticks: u64| seconds_between(&clock, begun, ticks);
            let process = Process {
                pid: row.pid,
                parent_pid: row.parent,
                number: row.number,
                parent: parent_of(&rows, row).map(|parent| parent.number),
                program: row.program.clone(),
                name: row.name().to_owned(),
                command_line: row.arguments.clone(),
                short_command_line: row.short_command_line(),
                is_forked: row.is_forked,
                is_main: Some(row.number) == main,
                is_removed: removed.contains(&row.number),
                end: row.end,
                begun_seconds: seconds(row.begun_ticks),
                seconds: (seconds(last) - seconds(row.begun_ticks)).max(0.0),
                share: 0.0,
                devices: memory_of(snapshot, &clock, begun),
            };
            all.insert(row.number, process);
        }
        let limits = peak_limits(all.values());
        let mut merged = merge(snapshots);
        let mut together = memory_of(&merged, &clock, begun);
        end_when_last_seen(&mut merged, &rows);
        let earlier = memory_of(&merged, &clock, begun);
        for (device, earlier) in together.iter_mut().zip(&earlier) {
            let error = &mut device.peak_error;
            if earlier.peak_error.low < error.low {
                // The peak would be lower if processes ended when they were last seen, so it depends on the exact times of the
                // ends.
                *error = Estimate::between(earlier.peak_error.low, error.high);
            }
            // The peaks of the single processes narrow the estimate for all of them.
            if let Some(&(least, most)) = limits.get(&device.id) {
                *error = error.at_most(most).at_least(least);
            }
            if error.relative_error() > MAX_ERROR && error.low > 0.0 {
                // Such an estimate would be shown as an upper bound. Show both ends of the interval instead, because the lower
                // one may be the peak of a single process.
                *error = Estimate::between(error.low, error.high);
            }
            *error = error.with_completeness(is_whole);
            device.peak_bytes = error.value as u64;
        }
        let seconds = seconds_between(&clock, begun, ended);
        let order = tree_order(&rows);
        all.values_mut().for_each(|process| process.share = share_of_peak(process, &together));
        let processes = order.into_iter().filter_map(|number| all.remove(&number)).collect();
        Self { complete, unrecorded, seconds, together, processes }
    }
}

/// Returns the peak of a process as a share of the peak of all processes, from 0 to 1, on the device where that share is
/// largest.
fn share_of_peak(process: &Process, together: &[DeviceMemory]) -> f64 {
    let of_device = |device: &DeviceMemory| {
        let all = together.iter().find(|all| all.id == device.id)?;
        (all.peak_bytes > 0).then(|| device.peak_bytes as f64 / all.peak_bytes as f64)
    };
    process.devices.iter().filter_map(of_device).fold(0.0, f64::max)
}

fn seconds_between(clock: &Clock, from: u64, to: u64) -> f64 {
    (clock.time_ns(to).saturating_sub(clock.time_ns(from))) as f64 / 1e9
}

fn memory_of(snapshot: &Snapshot, clock: &Clock, begun: u64) -> Vec<DeviceMemory> {
    let of_device = |device: DeviceId| {
        let lifetimes = lifetimes(snapshot, device);
        let peak = Peak::of(snapshot, device, &lifetimes);
        let counts = snapshot.exact_counts(device);
        DeviceMemory {
            device: DeviceAnswer::of(snapshot, device),
            id: device,
            peak_bytes: peak.bytes,
            peak_error: peak.error,
            peak_seconds: peak.ticks.map(|ticks| seconds_between(clock, begun, ticks)),
            allocated_bytes: counts.map(|counts| counts.allocated_bytes),
            allocations: counts.map(|counts| counts.allocations),
        }
    };
    snapshot.device_ids().into_iter().map(of_device).collect()
}

/// Moves the end of each process to the earliest possible moment, which is when the process was last seen running. In a merged
/// snapshot, a process ends at the moment when its end was noticed.
fn end_when_last_seen(merged: &mut Snapshot, rows: &[ProcessRow]) {
    let rows: BTreeMap<u64, &ProcessRow> = rows.iter().map(|row| (row.number.into(), row)).collect();
    for at in 0..merged.events.len() {
        // The events that free the blocks that a process still held at its end belong to no thread.
        if merged.events.thread[at].is_none()
            && let Some(row) = rows.get(&(merged.events.address[at] >> 48))
            && merged.events.ticks[at] == row.ended_ticks
        {
            merged.events.ticks[at] = row.seen_ticks;
        }
    }
    merged.events.sort_by_ticks();
}

/// Returns, for each device, the limits that the peaks of single processes set for the peak of all processes: the largest of
/// the lower ends, and the sum of the upper ends.
fn peak_limits<'a>(processes: impl Iterator<Item = &'a Process>) -> BTreeMap<DeviceId, (f64, f64)> {
    let mut limits: BTreeMap<DeviceId, (f64, f64)> = BTreeMap::new();
    for device in processes.flat_map(|process| &process.devices) {
        let (least, most) = limits.entry(device.id).or_default();
        *least = least.max(device.peak_error.low);
        *most += device.peak_error.high;
    }
    limits
}

/// Returns the process that started this one; `None` if that process was not recorded.
fn parent_of<'a>(rows: &'a [ProcessRow], row: &ProcessRow) -> Option<&'a ProcessRow> {
    // Several rows can have the parent's id, because a process keeps its id when it executes another program, and because
    // process ids are reused. The newest of those rows is the parent.
    let is_before = |other: &&ProcessRow| {
        other.pid == row.parent && other.number != row.number && other.begun_ticks <= row.begun_ticks
    };
    rows.iter().filter(is_before).max_by_key(|other| other.begun_ticks)
}

/// Returns the numbers of the processes. Each process comes before its children, and children are in the order in which they
/// began.
fn tree_order(rows: &[ProcessRow]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut by_beginning: Vec<&ProcessRow> = rows.iter().collect();
    by_beginning.sort_by_key(|row| (row.begun_ticks, row.number));
    for row in by_beginning {
        // 0 stands for no parent.
        let parent = parent_of(rows, row);
        children.entry(parent.map_or(0, |parent| parent.number)).or_default().push(row.number);
    }
    let mut order = Vec::with_capacity(rows.len());
    let mut waiting: Vec<u32> = children.remove(&0).unwrap_or_default();
    waiting.reverse();
    while let Some(number) = waiting.pop() {
        order.push(number);
        waiting.extend(children.remove(&number).unwrap_or_default().into_iter().rev());
    }
    // Only a damaged file has processes that are each other's parents.
    order.extend(children.into_values().flatten());
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u32, pid: u32, parent: u32, begun_ticks: u64) -> ProcessRow {
        ProcessRow { number, pid, parent, begun_ticks, ..ProcessRow::default() }
    }

    #[test]
    fn children_follow_the_program_that_started_them() {
        // Process 10 executes a second program after it has started 11, and starts 12 afterwards; 11 starts 13.
        let rows =
            [row(1, 10, 1, 0), row(2, 11, 10, 1), row(3, 10, 1, 2), row(4, 12, 10, 3), row(5, 13, 11, 4)];
        assert_eq!(tree_order(&rows), [1, 2, 5, 3, 4]);
        let parents: Vec<Option<u32>> =
            rows.iter().map(|row| parent_of(&rows, row).map(|parent| parent.number)).collect();
        assert_eq!(parents, [None, Some(1), None, Some(3), Some(2)]);
    }

    #[test]
    fn damaged_parents_lose_no_process() {
        let rows = [row(1, 10, 11, 5), row(2, 11, 10, 5), row(3, 12, 12, 5)];
        let mut order = tree_order(&rows);
        order.sort_unstable();
        assert_eq!(order, [1, 2, 3]);
    }
}
