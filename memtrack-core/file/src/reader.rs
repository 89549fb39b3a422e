//! The reader of `.memtrack` files: reads chunk after chunk into the column tables, until the end or the first
//! incomplete chunk. No input is trusted: lengths are checked before memory is allocated, and `dangling_ids`
//! replaces ids of missing rows.

use super::chunk::{self, Budget, ReadOutcome};
use super::merge::merge;
use super::part::{OpeningState, Part};
use super::payload;
use super::processes::{ProcessChoice, Rows};
use super::unfinished::{self, EventCounts};
use super::varint::Malformed;
use super::{FORMAT_VERSION, MAGIC, PROCESS_VERSION, ReadReport, RecordingError, dangling_ids};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{
    Clock, DriverReading, Meta, Module, NamesPiece, ProcessEnd, ProcessRow, Scope, ScopeSums, Snapshot,
    TaskTable, Thread, Unrecorded,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};

/// The maximum number of rows of the stack table that a file may leave empty.
const MAX_EMPTY_STACKS: usize = 1 << 20;
/// The maximum number of rows that a file may leave empty in the tables of scopes and threads of all processes together.
const MAX_EMPTY_IDS: usize = 1 << 20;

/// The content of a file.
#[derive(Debug)]
pub enum Content {
    /// A recording.
    Recording(Box<Snapshot>),
    /// The pickle of a snapshot from PyTorch, as far as it could be read.
    Pytorch(Vec<u8>),
}

/// Reads the description of the program from the beginning of a recording; `None` if the input is not a recording, or
/// ends before the description does.
pub fn read_meta(mut input: impl Read) -> Option<Meta> {
    read_header(&mut input).ok()?;
    let mut raw = Vec::new();
    match chunk::read(&mut input, &mut 16, &mut Budget::default(), &mut raw).ok()? {
        ReadOutcome::Chunk(chunk::META) => serde_json::from_slice(&raw).ok(),
        _ => None,
    }
}

/// Reads a recording up to its last complete chunk. From the recording of a run, reads only the program's process. The events
/// are sorted by ticks; events with equal ticks are in the order in which they were written.
///
/// # Errors
/// Fails when `input` cannot be read, is empty, is not a recording, or is of a newer version. A file that is cut off or
/// damaged after its header is not an error: the report names the missing part.
pub fn read(input: impl Read) -> Result<(Content, ReadReport), RecordingError> {
    read_choice(input, &ProcessChoice::Program, &|| u64::MAX)
}

/// Returns the number of bytes that were read so far from a file that is compressed as a whole.
pub type PackedInput<'a> = &'a dyn Fn() -> u64;

/// Reads a recording like [`read`], but reads the chosen processes of a run. `packed_bytes` limits the unpacked size of a
/// compressed file; anything beyond the limit counts as damaged.
///
/// # Errors
/// Fails like [`read`], and if a run has no such process.
pub fn read_choice(
    input: impl Read,
    choice: &ProcessChoice,
    packed_bytes: PackedInput<'_>,
) -> Result<(Content, ReadReport), RecordingError> {
    let (states, mut report) = read_states(input, choice.only_number(), packed_bytes)?;
    let content = states.finish(choice, &mut report)?;
    Ok((content, report))
}

/// Reads all processes of a run, each as a separate snapshot. A recording of one process yields one row, with the number 1; a
/// file with a snapshot from PyTorch yields none.
///
/// # Errors
/// Fails like [`read`].
pub fn read_each(
    input: impl Read,
    packed_bytes: PackedInput<'_>,
) -> Result<(Vec<(ProcessRow, Snapshot)>, ReadReport), RecordingError> {
    let (states, mut report) = read_states(input, None, packed_bytes)?;
    let snapshots = states.finish_each(&mut report);
    Ok((snapshots, report))
}

/// Reads the chunks of all processes, or of the one with the number `only`.
fn read_states(
    mut input: impl Read,
    only: Option<u32>,
    packed_bytes: PackedInput<'_>,
) -> Result<(States, ReadReport), RecordingError> {
    let version = read_header(&mut input)?;
    let mut states = States { is_run: version > PROCESS_VERSION, ..States::default() };
    let mut report = ReadReport::default();
    // Of the chunks of other processes, only the kinds that concern the whole run are wanted.
    let is_wanted = |process, kind| {
        let is_other = only.is_some_and(|only| process != 0 && process != only);
        !is_other || matches!(kind, chunk::PROCESS | chunk::UNRECORDED)
    };
    let [position, whole_bytes] = read_chunks(&mut input, &mut states, &mut report, is_wanted, packed_bytes)?;
    report.file_bytes = position + io::copy(&mut input, &mut io::sink())?;
    report.lost_bytes = report.file_bytes - whole_bytes;
    Ok((states, report))
}

/// Reads the chunks that follow the header, up to the end or the first damaged chunk. `is_wanted` is called with the number of
/// the process that a chunk belongs to, and with its kind. Returns the number of bytes that were read, and how many of them
/// are complete chunks.
fn read_chunks(
    input: &mut impl Read,
    states: &mut States,
    report: &mut ReadReport,
    is_wanted: impl Fn(u32, chunk::Kind) -> bool,
    packed_bytes: PackedInput<'_>,
) -> Result<[u64; 2], RecordingError> {
    let (mut budget, mut raw, mut position) = (Budget::default(), Vec::new(), 16);
    loop {
        let start = position;
        let current = states.current;
        let wanted = |kind| is_wanted(current, kind) || matches!(kind, chunk::NEXT | chunk::DONE);
        let kind = match chunk::read_if(input, &mut position, &mut budget, &mut raw, wanted)? {
            ReadOutcome::End | ReadOutcome::Cut => return Ok([position, start]),
            ReadOutcome::Chunk(kind) if budget.fits_packed(packed_bytes()) => kind,
            ReadOutcome::Chunk(_) | ReadOutcome::Damaged => {
                report.damaged = true;
                return Ok([position, start]);
            }
        };
        if kind == chunk::DONE {
            report.complete = true;
            return Ok([position; 2]);
        }
        if kind == chunk::NEXT {
            report.chunks += 1;
            report.parts += 1;
            states.current = 0;
            match read_header(input) {
                Ok(_) => position += 16,
                Err(RecordingError::Io(error)) => return Err(error.into()),
                Err(error) => {
                    report.continues_elsewhere = matches!(error, RecordingError::Empty);
                    report.damaged = !report.continues_elsewhere;
                    return Ok([position; 2]);
                }
            }
        } else if wanted(kind) {
            match states.add(kind, &raw) {
                Ok(true) => report.chunks += 1,
                Ok(false) => report.unknown_chunks += 1,
                Err(Malformed) => {
                    report.damaged = true;
                    return Ok([position, start]);
                }
            }
        }
    }
}

/// Reads the rows of the processes of a run, up to where the input ends or is damaged. Empty for any other file.
///
/// # Errors
/// Fails when `input` cannot be read.
pub fn read_processes(mut input: impl Read) -> io::Result<Vec<ProcessRow>> {
    let mut states = States::default();
    let is_wanted = |_, kind| kind == chunk::PROCESS;
    let read = read_header(&mut input).and_then(|version| match version {
        ..=PROCESS_VERSION => Ok([0; 2]),
        _ => read_chunks(&mut input, &mut states, &mut ReadReport::default(), is_wanted, &|| u64::MAX),
    });
    match read {
        Err(RecordingError::Io(error)) => Err(error),
        _ => Ok(states.rows.into_rows()),
    }
}

/// Returns the version of the format.
fn read_header(input: &mut impl Read) -> Result<u32, RecordingError> {
    let mut header = Vec::with_capacity(16);
    input.by_ref().take(16).read_to_end(&mut header)?;
    if header.is_empty() {
        return Err(RecordingError::Empty);
    }
    if !header.starts_with(&MAGIC[..header.len().min(8)]) {
        return Err(RecordingError::Foreign);
    }
    let Some((text, crc)) = header.split_first_chunk::<12>().filter(|(_, crc)| crc.len() == 4) else {
        return Err(RecordingError::Header);
    };
    if crc32fast::hash(text).to_le_bytes() != crc {
        return Err(RecordingError::Header);
    }
    match u32::from_le_bytes([text[8], text[9], text[10], text[11]]) {
        version @ 1..=FORMAT_VERSION => Ok(version),
        version => Err(RecordingError::Version(version)),
    }
}

/// The content of the chunks so far, by process.
#[derive(Default)]
struct States {
    /// The state of each process, by number. Number 0 contains everything before the first process, which is the entire
    /// content of a recording of one process.
    states: BTreeMap<u32, State>,
    rows: Rows,
    unrecorded: Unrecorded,
    /// Whether the header is that of a run.
    is_run: bool,
    /// The process that the next chunk belongs to.
    current: u32,
    /// The number of rows that all processes together may still leave empty.
    room: Room,
}

/// The number of table rows that a file may still leave empty. Such rows take memory, but no bytes in the file.
struct Room {
    stacks: usize,
    ids: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { stacks: MAX_EMPTY_STACKS, ids: MAX_EMPTY_IDS }
    }
}

impl States {
    /// Adds one payload; returns `false` for an unknown kind.
    fn add(&mut self, kind: chunk::Kind, raw: &[u8]) -> Result<bool, Malformed> {
        if kind == chunk::PROCESS {
            self.current = self.rows.add(raw)?;
            return Ok(true);
        }
        if kind == chunk::UNRECORDED {
            self.unrecorded = serde_json::from_slice(raw)?;
            return Ok(true);
        }
        self.states.entry(self.current).or_default().add(kind, raw, &mut self.room)
    }

    fn finish(mut self, choice: &ProcessChoice, report: &mut ReadReport) -> Result<Content, RecordingError> {
        report.processes = std::mem::take(&mut self.rows).into_rows();
        if report.processes.is_empty() {
            let state = self.states.remove(&0).unwrap_or_default();
            return Ok(match state.pytorch {
                Some(pickle) => Content::Pytorch(pickle),
                None => Content::Recording(Box::new(state.finish(report, &mut self.room))),
            });
        }
        let chosen = choice.choose(&report.processes)?;
        let snapshots = self.finish_processes(&chosen, report);
        report.chosen = chosen;
        report.complete = snapshots.iter().all(|(_, snapshot)| snapshot.meta.complete);
        let mut snapshot = merge(snapshots);
        if *choice == ProcessChoice::All {
            // If any process is missing, totals over all processes are only lower limits.
            snapshot.meta.complete &= self.unrecorded.count() == 0 && report.removed.is_empty();
        }
        Ok(Content::Recording(Box::new(snapshot)))
    }

    fn finish_each(mut self, report: &mut ReadReport) -> Vec<(ProcessRow, Snapshot)> {
        report.processes = std::mem::take(&mut self.rows).into_rows();
        if !report.processes.is_empty() {
            let all: Vec<u32> = report.processes.iter().map(|row| row.number).collect();
            return self.finish_processes(&all, report);
        }
        let state = self.states.remove(&0).unwrap_or_default();
        if state.pytorch.is_some() || self.is_run {
            return Vec::new();
        }
        let snapshot = state.finish(report, &mut self.room);
        let end = if snapshot.meta.complete { ProcessEnd::Ended } else { ProcessEnd::Running };
        let row = ProcessRow {
            number: 1,
            pid: snapshot.meta.pid,
            program: snapshot.meta.program.clone(),
            is_first: true,
            begun_ticks: snapshot.clock.first.0,
            end,
            ended_ticks: snapshot.clock.last.0,
            ..ProcessRow::default()
        };
        vec![(row, snapshot)]
    }

    /// Finishes the processes with these numbers.
    fn finish_processes(&mut self, numbers: &[u32], report: &mut ReadReport) -> Vec<(ProcessRow, Snapshot)> {
        let is_done = report.complete;
        (report.run_complete, report.unrecorded) = (is_done, self.unrecorded);
        let rows = std::mem::take(&mut report.processes);
        let clocks = self.states.values().filter_map(|state| state.clocks);
        let run_clock = clocks.reduce(Clock::spanning);
        let finish = |row: &ProcessRow| {
            report.complete = (is_done || row.end != ProcessEnd::Running) && !row.has_gaps;
            report.has_gaps |= row.has_gaps;
            let state = self.states.remove(&row.number);
            if state.is_none() {
                report.removed.push(row.number);
            }
            let mut state = state.unwrap_or_default();
            state.clocks = state.clocks.or(run_clock);
            (row.clone(), state.finish(report, &mut self.room))
        };
        let snapshots = rows.iter().filter(|row| numbers.contains(&row.number)).map(finish).collect();
        (report.processes, report.complete) = (rows, is_done);
        snapshots
    }
}

/// The content of the chunks of a process so far.
#[derive(Default)]
struct State {
    snapshot: Snapshot,
    scopes: Vec<(u32, Scope)>,
    threads: Vec<(u32, Thread)>,
    clocks: Option<Clock>,
    /// Whether the last LIVE chunk was read.
    live_complete: bool,
    statistics_read: bool,
    /// The newest table of sums by scope, as far as its rows have been read: the table is written in pieces.
    scope_sums: ScopeSums,
    /// The newest table of tasks, as far as it has been read, and whether it is incomplete.
    tasks: TaskTable,
    tasks_begun: bool,
    /// The segments that are parts of expandable segments.
    expandable: HashSet<(DeviceId, u64)>,
    /// If the recording consists of several parts, the state at the beginning of the oldest one.
    opening: Option<OpeningState>,
    /// The newest part from which a chunk was read.
    part: Option<Part>,
    /// The pickle of a snapshot from PyTorch, as far as it was read.
    pytorch: Option<Vec<u8>>,
}

impl State {
    /// Adds one payload; returns `false` for an unknown kind.
    fn add(&mut self, kind: chunk::Kind, raw: &[u8], room: &mut Room) -> Result<bool, Malformed> {
        let snapshot = &mut self.snapshot;
        match kind {
            chunk::META => snapshot.meta = serde_json::from_slice(raw)?,
            chunk::MODULES => {
                let modules: Vec<Module> = serde_json::from_slice(raw)?;
                // A later list repeats the earlier lists, except for binaries that were unloaded in between. Only binaries that
                // are not known yet are added.
                let place = |module: &Module| (module.start, module.path.clone());
                let known: HashSet<_> = snapshot.modules.iter().map(place).collect();
                snapshot.modules.extend(modules.into_iter().filter(|module| !known.contains(&place(module))));
            }
            chunk::CLOCK => {
                let (ticks, epoch_ns) = raw.split_first_chunk::<8>().ok_or(Malformed)?;
                let epoch_ns = <[u8; 8]>::try_from(epoch_ns).map_err(|_| Malformed)?;
                let reading = (u64::from_le_bytes(*ticks), u64::from_le_bytes(epoch_ns));
                self.clocks.get_or_insert(Clock { first: reading, last: reading }).last = reading;
            }
            chunk::STACKS => self.read_stacks(raw, &mut room.stacks)?,
            chunk::SCOPES => self.scopes.extend(payload::read_scopes(raw)?),
            chunk::THREADS => self.threads.extend(payload::read_threads(raw)?),
            chunk::EVENTS => payload::read_events(raw, &mut snapshot.events)?,
            chunk::LIVE => {
                let (blocks, last) = payload::read_live(raw)?;
                snapshot.blocks.extend(blocks);
                self.live_complete = last;
            }
            chunk::SEGMENTS => snapshot.segments.extend(payload::read_segments(raw)?),
            chunk::STATISTICS => {
                snapshot.devices = serde_json::from_slice(raw)?;
                self.statistics_read = true;
            }
            chunk::SCOPE_SUMS => {
                let (sums, last) = payload::read_scope_sums(raw)?;
                self.scope_sums.rows.extend(sums.rows);
                if last {
                    let rows = std::mem::take(&mut self.scope_sums.rows);
                    snapshot.scope_sums = Some(ScopeSums { rows, ..sums });
                }
            }
            chunk::EXPANDABLE => self.expandable.extend(payload::read_expandable(raw)?),
            chunk::DRIVER => {
                let mut readings: Vec<DriverReading> = serde_json::from_slice(raw)?;
                readings.truncate(DriverReading::MAX_COUNT);
                readings.retain(|reading| reading.device.is_accelerator());
                snapshot.driver = readings;
            }
            chunk::FOLDED => {
                snapshot.folded = serde_json::from_slice(raw)?;
            }
            chunk::SAMPLING => {
                snapshot.sampling = Some(serde_json::from_slice(raw)?);
            }
            chunk::ADDRESS_SPACE => {
                snapshot.address_space = Some(serde_json::from_slice(raw)?);
            }
            chunk::RESIDENT => snapshot.resident.push(crate::resident::read_reading(raw)?),
            chunk::COUNTED_PEAK => {
                snapshot.counted_peak = Some(serde_json::from_slice(raw)?);
            }
            chunk::OPERATORS => {
                let (left_out, piece) = payload::read_operators(raw)?;
                snapshot.operators.left_out = left_out;
                if !piece.lines.is_empty() {
                    snapshot.operators.pieces.push(piece);
                }
            }
            chunk::MARKS => {
                let marks = payload::read_marks(raw)?;
                snapshot.marks.left_out = snapshot.marks.left_out.saturating_add(marks.left_out);
                for mark in &marks.rows {
                    snapshot.marks.push(mark.ticks, mark.thread, marks.name(mark));
                }
            }
            chunk::TASKS => {
                let (tasks, last) = payload::read_tasks(raw)?;
                if !tasks.places.is_empty() {
                    (self.tasks, self.tasks_begun) = (tasks, true);
                } else if self.tasks_begun {
                    self.tasks.rows.extend(tasks.rows);
                }
                if last {
                    self.tasks_begun = false;
                    snapshot.tasks = std::mem::take(&mut self.tasks);
                }
            }
            chunk::NAMES => {
                let piece: NamesPiece = serde_json::from_slice(raw)?;
                snapshot.names.add_piece(&piece);
            }
            chunk::PART => {
                let part: Part = serde_json::from_slice(raw)?;
                let follows = |before: &Part| {
                    before.recording == part.recording && before.number.checked_add(1) == Some(part.number)
                };
                if part.first > part.number || self.part.as_ref().is_some_and(|before| !follows(before)) {
                    return Err(Malformed);
                }
                self.opening
                    .get_or_insert_with(|| OpeningState { part: part.clone(), ..OpeningState::default() });
                self.part = Some(part);
            }
            chunk::OPENING_LIVE | chunk::OPENING_SEGMENTS | chunk::OPENING_EXPANDABLE => {
                let opening = self.opening.as_mut().ok_or(Malformed)?;
                // The blocks at the beginning of a later part are already known from the parts before it.
                if self.part.as_ref().is_some_and(|part| part.number == opening.part.number) {
                    match kind {
                        chunk::OPENING_LIVE => opening.blocks.extend(payload::read_live(raw)?.0),
                        chunk::OPENING_SEGMENTS => opening.segments.extend(payload::read_segments(raw)?),
                        _ => self.expandable.extend(payload::read_expandable(raw)?),
                    }
                }
            }
            chunk::PYTORCH => self.pytorch.get_or_insert_default().extend_from_slice(raw),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn read_stacks(&mut self, raw: &[u8], room: &mut usize) -> Result<(), Malformed> {
        let stacks = &mut self.snapshot.stacks;
        payload::read_stacks(raw, |id, addresses| {
            let id = usize::try_from(id).map_err(|_| Malformed)?;
            // Stack 0 exists from the start, and an id never changes its meaning.
            if id < stacks.len() {
                return if stacks.get(memtrack_model::event::StackId(id as u32)) == addresses {
                    Ok(())
                } else {
                    Err(Malformed)
                };
            }
            *room = room.checked_sub(id - stacks.len()).ok_or(Malformed)?;
            if stacks.addresses.len() + addresses.len() > u32::MAX as usize {
                return Err(Malformed);
            }
            while stacks.len() < id {
                stacks.push(&[]);
            }
            stacks.push(&addresses);
            Ok(())
        })
    }

    fn finish(self, report: &mut ReadReport, room: &mut Room) -> Snapshot {
        let mut snapshot = self.snapshot;
        snapshot.meta.complete = report.complete;
        snapshot.clock = self.clocks.unwrap_or_default();
        snapshot.scopes.rows = dangling_ids::index_by_id(self.scopes, &mut room.ids, &mut report.unknown_ids);
        dangling_ids::cut_scope_cycles(&mut snapshot.scopes.rows, &mut report.unknown_ids);
        snapshot.threads = dangling_ids::index_by_id(self.threads, &mut room.ids, &mut report.unknown_ids);
        let counts = self.opening.map(|mut opening| {
            for segment in &mut opening.segments {
                segment.is_expandable = self.expandable.contains(&(segment.device, segment.address));
            }
            opening.insert_into(&mut snapshot)
        });
        snapshot.events.sort_by_ticks();
        snapshot.marks.rows.sort_by_key(|mark| mark.ticks);
        snapshot.resident.sort_by_key(|reading| reading.ticks);
        dangling_ids::clear_dangling_ids(&mut snapshot, &mut report.unknown_ids);
        snapshot.remove_superseded();
        if !self.live_complete {
            (snapshot.blocks, snapshot.segments) = unfinished::find_live(&snapshot.events);
            report.replayed = true;
        }
        for segment in &mut snapshot.segments {
            segment.is_expandable |= self.expandable.contains(&(segment.device, segment.address));
        }
        if !self.statistics_read {
            snapshot.devices = counts.unwrap_or_else(|| EventCounts::of(&snapshot.events).rows());
            // Sums over the events of a sampled heap are not counts of all blocks: a sampled block counts once, and the
            // blocks that were not sampled are missing.
            let sampled = snapshot.may_lack_small_blocks();
            for counts in snapshot.devices.iter_mut().filter(|row| sampled && row.device.is_host()) {
                counts.counted = false;
            }
        }
        if snapshot.meta.earlier_parts > 0 {
            let mut kept: HashMap<DeviceId, u64> = HashMap::new();
            snapshot.events.device.iter().for_each(|&device| *kept.entry(device).or_default() += 1);
            for counts in &mut snapshot.devices {
                let kept = kept.get(&counts.device).copied().unwrap_or(0);
                counts.dropped = counts.recorded.saturating_sub(kept);
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Action, Event};

    #[test]
    fn recording_unpacks_to_no_more_than_its_compressed_file_allows() {
        let mut snapshot = Snapshot::default();
        for ticks in 0..2_000_000 {
            snapshot.events.push(&Event {
                ticks,
                address: ticks.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                action: Action::Alloc,
                ..Event::BLANK
            });
        }
        let bytes = crate::write(&snapshot, Vec::new()).unwrap();
        let (_, whole) = read(&bytes[..]).unwrap();
        assert!(whole.complete, "{whole:?}");
        // The recording is read as if it came from 1000 bytes of a compressed file.
        let (content, report) = read_choice(&bytes[..], &ProcessChoice::Program, &|| 1000).unwrap();
        assert!(report.damaged && !report.complete && report.lost_bytes > 0);
        let Content::Recording(part) = content else { panic!("a recording") };
        assert!(part.events.len() < 2_000_000);
        assert!(read_choice(&bytes[..], &ProcessChoice::Program, &|| bytes.len() as u64).unwrap().1.complete);
    }
}
