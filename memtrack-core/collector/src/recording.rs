//! The file of a recording. It contains what was drained, in the order in which it was; if it has a limit, it continues in a
//! new part from time to time, which begins with all tables and the live blocks.

use crate::process::{End, Rows};
use memtrack_file::part::Part;
use memtrack_file::unfinished::{LiveState, count_event};
use memtrack_file::{RecordingWriter, create_new_file};
use memtrack_model::event::{Action, DeviceId, Event, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{DeviceStatistics, DriverReading, Meta, Module, Scope, Thread};
use memtrack_recorder::recorder::parts::{PartFile, free_number, lock_new_file, remove_new_part};
use memtrack_recorder::recorder::{Context, clock_now};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The maximum number of programs that one process executes, each with a recording.
const MAX_EXECUTED: u32 = 1000;

/// An open recording.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    writer: RecordingWriter<PartFile>,
    /// Present if the recording has a limit.
    parts: Option<Parts>,
    /// Present if parts begin with the live blocks, or if only live blocks have stacks.
    live: Option<Live>,
    /// Whether only live blocks have stacks, and not events.
    removes_stacks: bool,
}

/// The live blocks and segments, according to the drained events.
#[derive(Debug, Default)]
struct Live {
    state: LiveState,
    /// The stamps of the frees in the last drain whose blocks were not known: pages are read one by one, so that the allocation
    /// by another thread may be drained with the next events, but not later.
    early_frees: HashMap<(DeviceId, u64), u64>,
}

/// What the next part begins with.
#[derive(Debug)]
struct Parts {
    meta: Meta,
    clock: (u64, u64),
    part: Part,
    head_bytes: u64,
    newest_ticks: u64,
    counts: HashMap<DeviceId, DeviceStatistics>,
    stacks: Vec<(StackId, Vec<u64>)>,
    threads: Vec<(ThreadId, Thread)>,
    modules: Vec<Module>,
    scopes: Vec<(ScopeId, Scope)>,
}

impl Recording {
    /// Creates the file: `output` for the program itself if that is free, otherwise a name beside it.
    ///
    /// # Errors
    /// Fails when no file can be created.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn create(
        output: &Path,
        is_program: bool,
        pid: u32,
        meta: &Meta,
        clock: (u64, u64),
        max_bytes: Option<u64>,
        since_ticks: u64,
    ) -> io::Result<Self> {
        let (path, file) = create_file(output, is_program, pid)?;
        let part = max_bytes.map(|_| {
            let (recording, number) = (RandomState::new().hash_one(&path), free_number(&path));
            Part { recording, number, first: number, since_ticks, ..Part::default() }
        });
        let mut writer = RecordingWriter::new(PartFile::first(file, max_bytes)?, meta, clock)?;
        let parts = match part {
            Some(part) => {
                writer.part(&part)?;
                Some(Parts::new(meta.clone(), clock, part))
            }
            None => None,
        };
        let removes_stacks = meta.context == Context::State.name();
        let live = (parts.is_some() || removes_stacks).then(Live::default);
        Ok(Self { path, writer, parts, live, removes_stacks })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends rows, and then events that may refer to them.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append(&mut self, rows: Rows, events: &mut [Event]) -> io::Result<()> {
        self.begin_part_if_due()?;
        write_rows(&mut self.writer, &rows)?;
        if let Some(live) = &mut self.live {
            live.add(events);
        }
        if self.removes_stacks {
            events.iter_mut().for_each(|event| event.stack = StackId::NONE);
        }
        if !events.is_empty() {
            self.writer.write_together(|writer| {
                writer.events(events)?;
                writer.clock(clock_now())
            })?;
        }
        if let Some(parts) = &mut self.parts {
            parts.add(rows, events);
        }
        Ok(())
    }

    /// Appends the readings of the driver, which replace earlier ones.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append_driver(&mut self, readings: &[DriverReading]) -> io::Result<()> {
        self.writer.driver(readings)
    }

    /// Appends the sums so far, which replace earlier ones.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn append_sums(&mut self, sums: &End) -> io::Result<()> {
        if let Some(sums) = &sums.scope_sums {
            self.writer.scope_sums(sums)?;
        }
        self.writer.counted_peak(sums.counted_peak.as_ref())
    }

    fn begin_part_if_due(&mut self) -> io::Result<()> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let file = self.writer.output_mut();
        if file.due_bytes().is_none_or(|due| file.written() < due.max(2 * parts.head_bytes)) {
            return Ok(());
        }
        let next = parts.next_part();
        let mut writer = RecordingWriter::new(file.next(&self.path)?, &parts.meta, parts.clock)?;
        let live = self.live.get_or_insert_default();
        let begun = parts.write_head(&mut writer, &next, live).and_then(|()| {
            self.writer.next_part(next.number)?;
            writer.output_mut().take_place(self.writer.output_mut(), next.number - 1, &self.path)
        });
        begun.inspect_err(|_| remove_new_part(&self.path))?;
        parts.head_bytes = writer.output_mut().written();
        parts.part = next;
        self.writer = writer;
        Ok(())
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub(crate) fn finish(mut self, rows: Rows, end: &End) -> io::Result<()> {
        let writer = &mut self.writer;
        write_rows(writer, &rows)?;
        writer.clock(clock_now())?;
        let (sampling, peak) = (end.sampling.as_ref(), end.counted_peak.as_ref());
        writer.end_tables(&end.driver, sampling, peak, &end.folded, end.scope_sums.as_ref())?;
        match &self.live {
            Some(live) if self.removes_stacks => {
                let (blocks, segments) = live.state.sorted();
                self.writer.finish(&blocks, &segments, &end.devices).map(drop)
            }
            _ => self.writer.finish_from_events(&end.devices).map(drop),
        }
    }
}

/// Creates a new file for a process, and locks it, so that other commands know that it is in use.
fn create_file(output: &Path, is_program: bool, pid: u32) -> io::Result<(PathBuf, std::fs::File)> {
    let with_suffix = |suffix: String| {
        let mut name = output.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let own = is_program.then(|| output.to_owned());
    let numbered = (1..MAX_EXECUTED).map(|count| with_suffix(format!(".{pid}.{count}")));
    let names = own.into_iter().chain([with_suffix(format!(".{pid}"))]).chain(numbered);
    for path in names {
        match create_new_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            Ok(file) => {
                lock_new_file(&file);
                return Ok((path, file));
            }
        }
    }
    Err(io::Error::other(format!("{} and all names beside it are taken", output.display())))
}

fn write_rows(writer: &mut RecordingWriter<PartFile>, rows: &Rows) -> io::Result<()> {
    if !rows.modules.is_empty() {
        writer.modules(&rows.modules)?;
    }
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

/// Writes stacks, whose numbers mostly count up.
fn write_stacks(writer: &mut RecordingWriter<PartFile>, stacks: &[(StackId, Vec<u64>)]) -> io::Result<()> {
    let is_next = |a: &(StackId, Vec<u64>), b: &(StackId, Vec<u64>)| b.0.0 == a.0.0.wrapping_add(1);
    for run in stacks.chunk_by(is_next) {
        writer.stacks(run[0].0, run.iter().map(|(_, addresses)| addresses))?;
    }
    Ok(())
}

impl Live {
    /// Adds the events of a drain, in any order. Of two events at an address, the one with the larger stamp decides, in whatever
    /// order they were drained.
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

impl Parts {
    fn new(meta: Meta, clock: (u64, u64), part: Part) -> Self {
        Self {
            meta,
            clock,
            newest_ticks: part.since_ticks,
            part,
            head_bytes: 0,
            counts: HashMap::new(),
            stacks: Vec::new(),
            threads: Vec::new(),
            modules: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// Adds rows and events that were written.
    fn add(&mut self, rows: Rows, events: &[Event]) {
        self.stacks.extend(rows.stacks);
        self.threads.extend(rows.threads);
        self.modules.extend(rows.modules);
        self.scopes.extend(rows.scopes);
        for event in events {
            count_event(&mut self.counts, event);
            self.newest_ticks = self.newest_ticks.max(event.ticks);
        }
    }

    fn next_part(&self) -> Part {
        let mut devices: Vec<_> = self.counts.values().copied().collect();
        devices.sort_by_key(|counts| counts.device);
        let part = self.part.clone();
        Part { number: part.number + 1, since_ticks: self.newest_ticks, is_exact: true, devices, ..part }
    }

    fn write_head(&self, writer: &mut RecordingWriter<PartFile>, part: &Part, live: &Live) -> io::Result<()> {
        writer.part(part)?;
        writer.modules(&self.modules)?;
        write_stacks(writer, &self.stacks)?;
        writer.scopes(&self.scopes)?;
        writer.threads(&self.threads)?;
        let (blocks, segments) = live.state.sorted();
        writer.opening(&blocks, &segments)?;
        writer.clock(clock_now())
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
    fn the_larger_stamp_decides_in_whatever_order_events_are_drained() {
        let (first, free) = (event(1, Action::Alloc), event(2, Action::Free));
        let (second, last_free) = (event(3, Action::Alloc), event(4, Action::Free));
        assert_eq!(live_after(&[&[free, first]]), [0_u64; 0]);
        assert_eq!(live_after(&[&[free], &[first]]), [0_u64; 0], "the free was drained first");
        assert_eq!(live_after(&[&[free, second], &[first]]), [3]);
        assert_eq!(live_after(&[&[second], &[first, free]]), [3]);
        assert_eq!(live_after(&[&[free, second, last_free], &[first]]), [0_u64; 0]);
        // A block whose free was drained with it says nothing about a later one.
        assert_eq!(live_after(&[&[first, free], &[second]]), [3]);
    }
}
