//! The file of a run. It contains the data drained from each process, in the order in which it was drained. If the file has a
//! size limit, it continues in a new part from time to time. Each part begins with the tables and the live blocks of each
//! process that is still running.

use crate::process::Rows;
use memtrack_file::part::Part;
use memtrack_file::unfinished::{EventCounts, LiveState};
use memtrack_file::{RecordingWriter, create_private_file};
use memtrack_model::event::{Action, DeviceId, Event, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{
    DriverReading, KnownNames, Meta, Module, ProcessRow, ResidentReading, Scope, Snapshot, Thread, Unrecorded,
};
use memtrack_recorder::recorder::parts::{PartFile, free_number, lock_new_file, remove_new_part};
use memtrack_recorder::recorder::{Context, clock_now};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The maximum number of processes in a file.
const MAX_PROCESSES: usize = 4096;
/// The shortest time between two writes of the numbers of processes that are not recorded.
const UNRECORDED_INTERVAL: Duration = Duration::from_secs(1);

/// The file of a run, which is created when the first process has recorded something.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    max_bytes: Option<u64>,
    open: Option<OpenFile>,
    /// The rows of all processes, in the order of their numbers.
    rows: Vec<ProcessRow>,
    /// The data kept for processes that are still running.
    recordings: BTreeMap<u32, Recording>,
    has_failed: bool,
    /// Whether the end mark was written.
    is_finished: bool,
    unrecorded: Unrecorded,
    /// The last written value of `unrecorded`, and the time of that write.
    unrecorded_written: (Unrecorded, Instant),
    /// The number of processes that were omitted because there were too many, or because they began after the end.
    omitted: u64,
}

#[derive(Debug)]
struct OpenFile {
    writer: RecordingWriter<PartFile>,
    /// The number of the process whose data is being written.
    selected: u32,
    /// The part that is being written; `None` if the file has no size limit.
    part: Option<Part>,
    /// The bytes at the beginning of the part that repeat data from earlier parts.
    head_bytes: u64,
}

/// The data kept for a process while it is running.
#[derive(Debug)]
struct Recording {
    meta: Meta,
    clock: (u64, u64),
    /// The tables with which the next part will begin; `None` if the file has no size limit.
    tables: Option<Tables>,
    /// The live blocks; `None` if neither the next part will begin with them nor `removes_stacks` is set.
    live: Option<Live>,
    /// Whether stacks are kept only for live blocks, not for events.
    removes_stacks: bool,
}

/// The live blocks and segments, according to the drained events.
#[derive(Debug, Default)]
struct Live {
    state: LiveState,
    /// The frees in the last drain whose blocks were unknown: device, address and stamp. The pages of different threads are
    /// read one after another, so the allocation of such a block may be in the next drain, but not in a later one.
    early_frees: HashMap<(DeviceId, u64), u64>,
}

/// The data of a process that the next part will begin with.
#[derive(Debug)]
struct Tables {
    /// The number of the part during which the process began.
    first: u64,
    newest_ticks: u64,
    counts: EventCounts,
    stacks: Vec<(StackId, Vec<u64>)>,
    threads: Vec<(ThreadId, Thread)>,
    modules: Vec<Module>,
    scopes: Vec<(ScopeId, Scope)>,
    names: KnownNames,
}

impl RunFile {
    pub(crate) fn new(path: PathBuf, max_bytes: Option<u64>) -> Self {
        Self {
            path,
            max_bytes,
            open: None,
            rows: Vec::new(),
            recordings: BTreeMap::new(),
            has_failed: false,
            is_finished: false,
            unrecorded: Unrecorded::default(),
            unrecorded_written: (Unrecorded::default(), Instant::now()),
            omitted: 0,
        }
    }

    /// Returns the path of the file; `None` if nothing was recorded.
    pub(crate) fn path(&self) -> Option<&Path> {
        (!self.rows.is_empty()).then_some(&self.path)
    }

    /// Returns the processes so far.
    pub(crate) fn rows(&self) -> &[ProcessRow] {
        &self.rows
    }

    /// Returns how many processes were omitted.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Adds a process, and returns its number; `None` if there are too many. The number in `row` is ignored.
    ///
    /// # Errors
    /// Fails when the file cannot be created or written.
    pub(crate) fn begin(
        &mut self,
        row: ProcessRow,
        meta: Meta,
        clock: (u64, u64),
        since_ticks: u64,
    ) -> io::Result<Option<u32>> {
        if self.rows.len() >= MAX_PROCESSES || self.is_finished {
            self.omitted += 1;
            return Ok(None);
        }
        if self.open.is_none() {
            let open =
                self.create(row.pid, &meta, clock, since_ticks).inspect_err(|_| self.has_failed = true)?;
            self.open = Some(open);
        }
        let number = self.rows.len() as u32 + 1;
        let removes_stacks = meta.context == Context::State.name();
        let part = self.open.as_ref().and_then(|open| open.part.as_ref());
        let tables = part.map(|part| Tables::new(part.number, since_ticks));
        let live = (tables.is_some() || removes_stacks).then(Live::default);
        let part =
            part.map(|part| Part { first: part.number, since_ticks, devices: Vec::new(), ..part.clone() });
        if let Some(open) = &mut self.open {
            // The process is selected by its row, which is written first.
            open.selected = number;
        }
        self.rows.push(ProcessRow { number, ..row });
        self.recordings.insert(number, Recording { meta: meta.clone(), clock, tables, live, removes_stacks });
        let row = self.rows[number as usize - 1].clone();
        self.write(number, |writer, _| {
            writer.process(&row)?;
            writer.meta(&meta)?;
            writer.clock(clock)?;
            part.map_or(Ok(()), |part| writer.part(&part))
        })?;
        Ok(Some(number))
    }

    /// Creates the file. If another command is recording into it, creates a file beside it whose name ends in the
    /// process id.
    fn create(&mut self, pid: u32, meta: &Meta, clock: (u64, u64), since_ticks: u64) -> io::Result<OpenFile> {
        let mut beside = self.path.as_os_str().to_owned();
        beside.push(format!(".{pid}"));
        let file = match create_private_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.path = beside.into();
                create_private_file(&self.path)
            }
            created => created,
        };
        let file =
            file.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))?;
        // The lock shows other commands that the file is in use.
        lock_new_file(&file);
        let part = self.max_bytes.map(|_| {
            let (recording, number) = (RandomState::new().hash_one(&self.path), free_number(&self.path));
            Part { recording, number, first: number, since_ticks, ..Part::default() }
        });
        let mut writer = RecordingWriter::new_run(PartFile::first(file, self.max_bytes)?, meta, clock)?;
        if let Some(part) = &part {
            writer.part(part)?;
        }
        Ok(OpenFile { writer, selected: 0, part, head_bytes: 0 })
    }

    /// Writes data of a process. After an error, nothing more is written.
    fn write(
        &mut self,
        number: u32,
        write: impl FnOnce(&mut RecordingWriter<PartFile>, &mut Recording) -> io::Result<()>,
    ) -> io::Result<()> {
        let (Some(open), Some(recording)) = (&mut self.open, self.recordings.get_mut(&number)) else {
            return Ok(());
        };
        if self.has_failed {
            return Ok(());
        }
        let is_selected = std::mem::replace(&mut open.selected, number) == number;
        let written = open.writer.write_together(|writer| {
            if !is_selected {
                writer.select_process(number)?;
            }
            write(writer, recording)
        });
        written.inspect_err(|_| self.has_failed = true)
    }

    /// Appends rows of a process, and then events that may refer to them. `held_bytes` is the most memory that the process
    /// has held.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append(
        &mut self,
        number: u32,
        rows: Rows,
        events: &mut [Event],
        held_bytes: u64,
    ) -> io::Result<()> {
        self.begin_part_if_due()?;
        // Readers of an unfinished file select the process to show by the rows' `held_bytes`, so a row is written again when
        // this number has grown by a quarter.
        if self.rows.get(number as usize - 1).is_some_and(|row| held_bytes / 5 * 4 > row.held_bytes) {
            self.update(number, |row| row.held_bytes = held_bytes)?;
        }
        self.write(number, |writer, recording| {
            write_rows(writer, &rows)?;
            if let Some(live) = &mut recording.live {
                live.add(events);
            }
            if recording.removes_stacks {
                events.iter_mut().for_each(|event| event.stack = StackId::NONE);
            }
            if !events.is_empty() {
                writer.events(events)?;
                writer.clock(clock_now())?;
            }
            if let Some(tables) = &mut recording.tables {
                tables.add(rows, events);
            }
            Ok(())
        })
    }

    /// Appends the readings of the driver, which replace earlier ones.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append_driver(&mut self, number: u32, readings: &[DriverReading]) -> io::Result<()> {
        self.write(number, |writer, _| writer.driver(readings))
    }

    /// Appends a reading of the resident memory.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append_resident(&mut self, number: u32, reading: &ResidentReading) -> io::Result<()> {
        self.write(number, |writer, _| writer.resident(reading))
    }

    /// Appends the sums of a process so far, which replace earlier ones.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append_sums(&mut self, number: u32, sums: &Snapshot) -> io::Result<()> {
        self.write(number, |writer, _| {
            if let Some(sums) = &sums.scope_sums {
                writer.scope_sums(sums)?;
            }
            writer.address_space(sums.address_space.as_ref())?;
            writer.counted_peak(sums.counted_peak.as_ref())
        })
    }

    /// Writes how many processes are not recorded, if these numbers have changed.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn set_unrecorded(&mut self, unrecorded: Unrecorded) -> io::Result<()> {
        self.unrecorded = unrecorded;
        let is_due = self.unrecorded_written.1.elapsed() >= UNRECORDED_INTERVAL;
        if is_due { self.write_unrecorded() } else { Ok(()) }
    }

    fn write_unrecorded(&mut self) -> io::Result<()> {
        let is_new = self.unrecorded_written.0 != self.unrecorded;
        let Some(open) = self.open.as_mut().filter(|_| is_new && !self.has_failed) else { return Ok(()) };
        self.unrecorded_written = (self.unrecorded, Instant::now());
        open.writer.unrecorded(&self.unrecorded).inspect_err(|_| self.has_failed = true)
    }

    /// Changes the row of a process, and writes the row if it is different.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn update(&mut self, number: u32, change: impl FnOnce(&mut ProcessRow)) -> io::Result<()> {
        let Some(row) = self.rows.get_mut((number as usize).wrapping_sub(1)) else { return Ok(()) };
        let before = row.clone();
        change(row);
        let row = row.clone();
        let Some(open) = self.open.as_mut().filter(|_| row != before && !self.has_failed) else {
            return Ok(());
        };
        open.selected = number;
        open.writer.process(&row).inspect_err(|_| self.has_failed = true)
    }

    /// Ends the recording of a process.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn end(&mut self, number: u32, rows: Rows, end: &Snapshot) -> io::Result<()> {
        let written = self.write(number, |writer, recording| {
            write_rows(writer, &rows)?;
            writer.clock(clock_now())?;
            writer.end_tables(end)?;
            if let Some(live) = recording.live.as_ref().filter(|_| recording.removes_stacks) {
                let (blocks, segments) = live.state.sorted();
                writer.live(&blocks, &segments)?;
            }
            writer.statistics(&end.devices)
        });
        self.recordings.remove(&number);
        written
    }

    /// Ends the file, after all processes have ended.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.is_finished = true;
        self.write_unrecorded()?;
        let open = self.open.take().filter(|_| !self.has_failed);
        open.map_or(Ok(()), |open| open.writer.done().map(drop))
    }

    fn begin_part_if_due(&mut self) -> io::Result<()> {
        let Some(open) = self.open.as_mut().filter(|_| !self.has_failed) else { return Ok(()) };
        let file = open.writer.output_mut();
        let is_due = file.due_bytes().is_some_and(|due| file.written() >= due.max(2 * open.head_bytes));
        let Some(part) = open.part.clone().filter(|_| is_due) else { return Ok(()) };
        self.begin_part(part).inspect_err(|_| {
            self.has_failed = true;
            remove_new_part(&self.path);
        })
    }

    fn begin_part(&mut self, part: Part) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(first) = self.recordings.values().next() else { return Ok(()) };
        let file = open.writer.output_mut().next(&self.path)?;
        let mut writer = RecordingWriter::new_run(file, &first.meta, first.clock)?;
        let newest = self.recordings.values().filter_map(|recording| recording.tables.as_ref());
        let since_ticks = newest.map(|tables| tables.newest_ticks).max().unwrap_or(part.since_ticks);
        let part = Part { number: part.number + 1, since_ticks, is_exact: true, ..part };
        writer.part(&part)?;
        writer.unrecorded(&self.unrecorded)?;
        for row in &self.rows {
            writer.process(row)?;
            if let Some(recording) = self.recordings.get(&row.number) {
                recording.write_head(&mut writer, &part)?;
            }
        }
        open.writer.next_part(part.number)?;
        writer.output_mut().take_place(open.writer.output_mut(), part.number - 1, &self.path)?;
        open.head_bytes = writer.output_mut().written();
        open.selected = self.rows.len() as u32;
        (open.writer, open.part) = (writer, Some(part));
        Ok(())
    }
}

impl Recording {
    /// Writes the state of a process at the beginning of a part.
    fn write_head(&self, writer: &mut RecordingWriter<PartFile>, part: &Part) -> io::Result<()> {
        let (Some(tables), Some(live)) = (&self.tables, &self.live) else { return Ok(()) };
        writer.meta(&self.meta)?;
        writer.clock(self.clock)?;
        let (first, since_ticks, devices) = (tables.first, tables.newest_ticks, tables.counts.rows());
        writer.part(&Part { first, since_ticks, devices, ..part.clone() })?;
        writer.modules(&tables.modules)?;
        writer.names(&tables.names)?;
        write_stacks(writer, &tables.stacks)?;
        writer.scopes(&tables.scopes)?;
        writer.threads(&tables.threads)?;
        let (blocks, segments) = live.state.sorted();
        writer.opening(&blocks, &segments)?;
        writer.clock(clock_now())
    }
}

fn write_rows(writer: &mut RecordingWriter<PartFile>, rows: &Rows) -> io::Result<()> {
    if !rows.modules.is_empty() {
        writer.modules(&rows.modules)?;
    }
    writer.names(&rows.names)?;
    write_stacks(writer, &rows.stacks)?;
    if !rows.scopes.is_empty() {
        writer.scopes(&rows.scopes)?;
    }
    if !rows.threads.is_empty() {
        writer.threads(&rows.threads)?;
    }
    if !rows.marks.rows.is_empty() {
        writer.marks(&rows.marks)?;
    }
    Ok(())
}

/// Writes stacks, most of which have consecutive ids.
fn write_stacks(writer: &mut RecordingWriter<PartFile>, stacks: &[(StackId, Vec<u64>)]) -> io::Result<()> {
    let is_next = |a: &(StackId, Vec<u64>), b: &(StackId, Vec<u64>)| b.0.0 == a.0.0.wrapping_add(1);
    for run in stacks.chunk_by(is_next) {
        writer.stacks(run[0].0, run.iter().map(|(_, addresses)| addresses))?;
    }
    Ok(())
}

impl Live {
    /// Adds the events of a drain, in any order. Of two events at an address, the one with the larger stamp decides, regardless
    /// of the order in which they were drained.
    fn add(&mut self, events: &[Event]) {
        let mut events: Vec<&Event> = events.iter().collect();
        events.sort_by_key(|event| event.ticks);
        let earlier = std::mem::take(&mut self.early_frees);
        for event in events {
            let place = (event.device, event.address);
            let block = self.state.block(event.device, event.address);
            let is_replaced = block.is_some_and(|block| block.ticks > event.ticks);
            let is_outdated = match event.action {
                Action::Alloc => is_replaced || earlier.get(&place).is_some_and(|&free| free > event.ticks),
                Action::Free | Action::FreeCompleted => {
                    if block.is_none() {
                        self.early_frees.insert(place, event.ticks);
                    }
                    is_replaced
                }
                _ => false,
            };
            if !is_outdated {
                self.state.apply(event);
            }
        }
    }
}

impl Tables {
    fn new(first: u64, since_ticks: u64) -> Self {
        Self {
            first,
            newest_ticks: since_ticks,
            counts: EventCounts::default(),
            stacks: Vec::new(),
            threads: Vec::new(),
            modules: Vec::new(),
            scopes: Vec::new(),
            names: KnownNames::default(),
        }
    }

    /// Adds rows and events that were written.
    fn add(&mut self, rows: Rows, events: &[Event]) {
        self.stacks.extend(rows.stacks);
        self.threads.extend(rows.threads);
        self.modules.extend(rows.modules);
        self.scopes.extend(rows.scopes);
        self.names.frames.extend(rows.names.frames);
        for event in events {
            self.counts.add(event);
            self.newest_ticks = self.newest_ticks.max(event.ticks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{EventFlags, StreamId};

    fn event(ticks: u64, action: Action) -> Event {
        Event {
            ticks,
            address: 4096,
            size_bytes: 8,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            thread: ThreadId(1),
            device: DeviceId(0),
            action,
            flags: EventFlags::default(),
        }
    }

    /// Returns the stamps of the blocks that are live after these drains.
    fn live_after(drains: &[&[Event]]) -> Vec<u64> {
        let mut live = Live::default();
        drains.iter().for_each(|drain| live.add(drain));
        live.state.sorted().0.iter().map(|block| block.ticks).collect()
    }

    #[test]
    fn larger_stamp_decides_regardless_of_drain_order() {
        let (first, free) = (event(1, Action::Alloc), event(2, Action::Free));
        let (second, last_free) = (event(3, Action::Alloc), event(4, Action::Free));
        assert_eq!(live_after(&[&[free, first]]), [0_u64; 0]);
        assert_eq!(live_after(&[&[free], &[first]]), [0_u64; 0], "the free was drained first");
        assert_eq!(live_after(&[&[free, second], &[first]]), [3]);
        assert_eq!(live_after(&[&[second], &[first, free]]), [3]);
        assert_eq!(live_after(&[&[free, second, last_free], &[first]]), [0_u64; 0]);
        // A free whose block was known does not affect a later block at the same address.
        assert_eq!(live_after(&[&[first, free], &[second]]), [3]);
    }
}
