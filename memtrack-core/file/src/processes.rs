//! The choice of the processes of a run to read.

use super::RecordingError;
use super::varint::Malformed;
use memtrack_model::snapshot::{ProcessEnd, ProcessRow, main_process};
use memtrack_model::units::printable;
use std::collections::BTreeMap;

/// The maximum number of processes in a file.
const MAX_PROCESSES: usize = 1 << 16;

/// The processes of a run to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProcessChoice {
    /// The process that [`main_process`] selects as the program of the run.
    #[default]
    Program,
    /// The process with this id or, if there is none, the process with this name or command line that held the most memory.
    Named(String),
    /// The process with this command line, as [`ProcessRow::short_command_line`] returns it, or else the program.
    Like(String),
    /// The process with this number.
    Number(u32),
    /// All processes as one. The number of a process times 2^48 is added to its addresses.
    All,
}

impl ProcessChoice {
    /// Returns the number of the process if the choice is a number, so that no other process needs to be read.
    pub(super) fn only_number(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the numbers of the chosen processes.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub fn choose(&self, rows: &[ProcessRow]) -> Result<Vec<u32>, RecordingError> {
        let one = match self {
            Self::All => return Ok(rows.iter().map(|row| row.number).collect()),
            Self::Program => main_process(rows),
            Self::Like(command) => {
                let like = rows.iter().filter(|row| row.short_command_line() == *command);
                like.max_by_key(|row| row.held_bytes).map(|row| row.number).or_else(|| main_process(rows))
            }
            Self::Number(number) => rows.iter().map(|row| row.number).find(|there| there == number),
            Self::Named(name) => find(rows, name).map(|row| row.number),
        };
        one.map(|number| vec![number]).ok_or_else(|| {
            let wanted = match self {
                Self::Named(name) => name.clone(),
                Self::Number(number) => format!("number {number}"),
                Self::Program | Self::Like(_) | Self::All => String::new(),
            };
            // The last program of each process, the largest process first.
            let mut last: Vec<&ProcessRow> =
                rows.iter().filter(|row| row.end != ProcessEnd::Replaced).collect();
            last.sort_by_key(|row| std::cmp::Reverse(row.held_bytes));
            let processes = last.iter().map(|row| (row.pid, printable(&row.short_command_line()))).collect();
            RecordingError::NoProcess { wanted, processes }
        })
    }
}

/// Returns the process with this id or name.
fn find<'a>(rows: &'a [ProcessRow], name: &str) -> Option<&'a ProcessRow> {
    let pid = name.parse().ok();
    // The newest row with this id: after `exec`, the later program, and if the id was reused, the later process.
    let of_pid = rows.iter().filter(|row| Some(row.pid) == pid).max_by_key(|row| row.begun_ticks);
    of_pid.or_else(|| rows.iter().filter(|row| row.is_named(name)).max_by_key(|row| row.held_bytes))
}

/// The rows of processes that were read so far.
#[derive(Default)]
pub(super) struct Rows(BTreeMap<u32, ProcessRow>);

impl Rows {
    /// Adds the payload of a PROC chunk, and returns the number of the process.
    pub(super) fn add(&mut self, raw: &[u8]) -> Result<u32, Malformed> {
        let (number, json) = raw.split_first_chunk::<4>().ok_or(Malformed)?;
        let number = u32::from_le_bytes(*number);
        if json.is_empty() {
            return if self.0.contains_key(&number) { Ok(number) } else { Err(Malformed) };
        }
        let row: ProcessRow = serde_json::from_slice(json)?;
        let is_full = self.0.len() >= MAX_PROCESSES && !self.0.contains_key(&number);
        if number == 0 || row.number != number || is_full {
            return Err(Malformed);
        }
        self.0.insert(number, row);
        Ok(number)
    }

    pub(super) fn into_rows(self) -> Vec<ProcessRow> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, RecordingWriter, read, read_choice, read_processes};
    use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
    use memtrack_model::snapshot::{DeviceStatistics, Meta, Module, ProcessEnd, Snapshot, Thread};

    const COUNTS: DeviceStatistics = DeviceStatistics::of(DeviceId(0));

    fn row(number: u32, pid: u32, program: &str) -> ProcessRow {
        ProcessRow {
            number,
            pid,
            program: program.into(),
            held_bytes: 100,
            begun_ticks: 1,
            ..ProcessRow::default()
        }
    }

    fn event(ticks: u64, address: u64, action: Action) -> Event {
        Event {
            ticks,
            address,
            size_bytes: 100,
            stream: StreamId(0),
            stack: StackId(1),
            scope: ScopeId::NONE,
            thread: ThreadId(1),
            device: DeviceId(0),
            action,
            flags: EventFlags::default(),
        }
    }

    /// Two processes, whose chunks alternate, with a block each at the same address. The second process frees its
    /// block.
    fn run(done: bool) -> Vec<u8> {
        let meta = |program: &str| Meta { program: program.into(), ..Meta::default() };
        let mut writer = RecordingWriter::new_run(Vec::new(), &meta("/bin/a"), (0, 0)).unwrap();
        for (number, program, stack) in [(1, "/bin/a", 0x1000), (2, "/bin/b", 0x2000)] {
            let first = number == 1;
            writer.process(&ProcessRow { is_first: first, ..row(number, 10 + number, program) }).unwrap();
            writer.meta(&meta(program)).unwrap();
            let module = Module { path: program.into(), start: 0x1000, end: 0x3000, ..Module::default() };
            writer.modules(&[module]).unwrap();
            writer.threads(&[(ThreadId(1), Thread { name: program.into(), os_id: 7 })]).unwrap();
            writer.stacks(StackId(1), [[stack]]).unwrap();
        }
        for (number, ticks) in [(1, 10), (2, 20)] {
            writer.select_process(number).unwrap();
            writer.events(&[event(ticks, 64, Action::Alloc)]).unwrap();
        }
        writer.events(&[event(30, 64, Action::Free)]).unwrap();
        writer.process(&ProcessRow { end: ProcessEnd::Code(0), ..row(2, 12, "/bin/b") }).unwrap();
        if done { writer.done().unwrap() } else { writer.output_mut().clone() }
    }

    fn open(file: &[u8], choice: &ProcessChoice) -> Result<(Snapshot, crate::ReadReport), RecordingError> {
        match read_choice(file, choice, &|| u64::MAX)? {
            (Content::Recording(snapshot), report) => Ok((*snapshot, report)),
            (Content::Pytorch(_), _) => panic!("no pickle was written"),
        }
    }

    #[test]
    fn each_process_of_a_run_is_read_alone() {
        let file = run(true);
        let named = |name: &str| ProcessChoice::Named(name.into());
        for (choice, number, program, live) in [
            (ProcessChoice::Program, 1, "/bin/a", 1),
            (named("11"), 1, "/bin/a", 1),
            (named("b"), 2, "/bin/b", 0),
            (ProcessChoice::Number(2), 2, "/bin/b", 0),
        ] {
            let (snapshot, report) = open(&file, &choice).unwrap();
            assert_eq!((report.chosen, report.processes.len()), (vec![number], 2), "{choice:?}");
            assert_eq!((&*snapshot.meta.program, snapshot.blocks.len()), (program, live));
            assert_eq!(snapshot.stacks.get(StackId(1)), [0x1000 * u64::from(number)]);
            assert_eq!(snapshot.events.len(), number as usize);
            assert_eq!(snapshot.threads[1].name, program);
            assert!(report.complete && !report.damaged);
        }
        let error = open(&file, &named("c")).unwrap_err().to_string();
        assert_eq!(error, "no process with the id or name c; the run has 11 (a), 12 (b)");
    }

    #[test]
    fn all_processes_are_one_snapshot_with_separate_addresses() {
        let (snapshot, report) = open(&run(true), &ProcessChoice::All).unwrap();
        assert_eq!(report.chosen, [1, 2]);
        assert_eq!(snapshot.events.ticks, [10, 20, 30]);
        assert_eq!(snapshot.events.address, [64 + (1 << 48), 64 + (2 << 48), 64 + (2 << 48)]);
        assert_eq!(snapshot.blocks.len(), 1);
        assert_eq!(snapshot.blocks[0].address, 64 + (1 << 48));
        let stacks: Vec<&[u64]> =
            snapshot.events.stack.iter().map(|&stack| snapshot.stacks.get(stack)).collect();
        assert_eq!(stacks, [[0x1000 + (1 << 48)], [0x2000 + (2 << 48)], [0x2000 + (2 << 48)]]);
        let module =
            |address: u64| snapshot.modules.iter().find(|m| (m.start..m.end).contains(&address)).unwrap();
        assert_eq!((&*module(stacks[0][0]).path, &*module(stacks[1][0]).path), ("/bin/a", "/bin/b"));
        let threads: Vec<&str> =
            snapshot.events.thread.iter().map(|thread| &*snapshot.threads[thread.index()].name).collect();
        assert_eq!(threads, ["/bin/a", "/bin/b", "/bin/b"]);
        assert_eq!(snapshot.devices[0].allocations, 2);
    }

    #[test]
    fn memory_of_processes_that_have_ended_is_free_in_the_merged_snapshot() {
        let mut writer = RecordingWriter::new_run(Vec::new(), &Meta::default(), (0, 0)).unwrap();
        for (number, ticks) in [(1, 10), (2, 40)] {
            let ended = (ProcessEnd::Signal(9), 15 + 5 * u64::from(number));
            let row = ProcessRow { end: ended.0, ended_ticks: ended.1, ..row(number, number, "a") };
            writer.process(&row).unwrap();
            writer.events(&[event(ticks, 64, Action::Alloc)]).unwrap();
            writer
                .statistics(&[DeviceStatistics { allocated_bytes: 100, allocations: 1, ..COUNTS }])
                .unwrap();
        }
        let (snapshot, _) = open(&writer.done().unwrap(), &ProcessChoice::All).unwrap();
        // The second process was seen to end before its last event was read.
        assert_eq!(snapshot.events.ticks, [10, 20, 40, 40]);
        assert_eq!(snapshot.events.action, [Action::Alloc, Action::Free, Action::Alloc, Action::Free]);
        assert!(snapshot.blocks.is_empty());
        assert_eq!((snapshot.devices[0].freed_bytes, snapshot.devices[0].allocated_bytes), (200, 200));
    }

    #[test]
    fn a_process_that_has_ended_is_complete_in_a_run_that_goes_on() {
        let file = run(false);
        assert!(!open(&file, &ProcessChoice::Number(1)).unwrap().1.complete);
        assert!(open(&file, &ProcessChoice::Number(2)).unwrap().1.complete);
        assert!(!open(&file, &ProcessChoice::All).unwrap().1.complete);
    }

    #[test]
    fn a_process_with_gaps_is_not_complete() {
        let mut writer = RecordingWriter::new_run(Vec::new(), &Meta::default(), (0, 0)).unwrap();
        let row = ProcessRow { end: ProcessEnd::Code(0), has_gaps: true, ..row(1, 11, "/bin/a") };
        writer.process(&row).unwrap();
        writer.events(&[event(10, 64, Action::Alloc)]).unwrap();
        let (snapshot, report) = open(&writer.done().unwrap(), &ProcessChoice::Program).unwrap();
        assert!(report.run_complete && !report.complete && !snapshot.meta.complete);
        let warning = report.warning().unwrap();
        assert!(
            warning.starts_with("events may be missing, because no memory was ready for them"),
            "{warning}"
        );
    }

    #[test]
    fn cut_and_damaged_runs_are_read_as_far_as_they_go() {
        let file = run(true);
        for end in 16..file.len() {
            let rows = read_processes(&file[..end]).unwrap();
            for choice in [ProcessChoice::Program, ProcessChoice::All, ProcessChoice::Number(1)] {
                match open(&file[..end], &choice) {
                    Ok((_, report)) => assert!(!report.complete || !report.processes.is_empty()),
                    Err(error) => assert!(rows.is_empty(), "{error}"),
                }
            }
        }
        for at in 16..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x41;
            let _ = read(&damaged[..]);
            let _ = open(&damaged, &ProcessChoice::All);
            let _ = read_processes(&damaged[..]);
        }
    }

    #[test]
    fn a_recording_of_one_process_has_no_rows() {
        let writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0)).unwrap();
        let file = writer.finish(&[], &[], &[]).unwrap();
        assert!(read_processes(&file[..]).unwrap().is_empty());
        assert!(open(&file, &ProcessChoice::Number(3)).unwrap().1.processes.is_empty());
        assert_eq!(file[8], 1, "earlier versions read it");
    }
}
