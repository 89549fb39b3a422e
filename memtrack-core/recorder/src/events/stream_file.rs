//! A recording that is written to a file while the program runs: events are appended after the stacks, scopes and
//! threads whose ids they contain. `streaming` decides which thread writes, and when.

use super::chunk::Chunk;
use super::parts::{Destination, PartFile, free_number, remove_new_part};
use super::{Options, Recorder, binaries, collect, fork, marks, thread_names};
use crate::scope;
use crate::stack::capture::binaries_generation;
use crate::{clock, settings};
use memtrack_file::RecordingWriter;
use memtrack_file::part::Part;
use memtrack_file::unfinished::EventCounts;
use memtrack_model::event::{Action, Event, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{
    CountedPeak, DeviceStatistics, Scope, ScopeSums, Snapshot, StackTable, TaskTable, Thread,
};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A recording that is open for writing.
pub(crate) struct Stream {
    path: PathBuf,
    pub(super) writer: RecordingWriter<PartFile>,
    options: Options,
    written: WrittenRows,
    /// The part being written; `None` if the stream is a single file.
    part: Option<Part>,
    /// The previous part, until the part of `writer` takes its place.
    previous: Option<RecordingWriter<PartFile>>,
    /// The size of the current part's head.
    head_bytes: u64,
    /// The sums over the events of this part and all earlier ones, if there are parts.
    counts: EventCounts,
    /// The newest stamp that was written.
    newest_ticks: u64,
    /// The number of events already written from each chunk that was written before it was full.
    partly_written: HashMap<*const Chunk<Event>, usize>,
    /// The generation of the newest list of binaries in the file.
    binaries_seen: u32,
    /// The number of marks that existed when marks were last written.
    marks_seen: u64,
    /// A buffer for the events that are being written, kept to reuse its memory.
    events: Vec<Event>,
    is_broken: bool,
    /// A message for the user that is not printed yet.
    note: Option<String>,
    /// An error that is not reported yet.
    error: Option<String>,
    /// A number that distinguishes this stream from earlier ones.
    pub(super) number: u32,
}

/// The rows of the tables that a file already contains.
struct WrittenRows {
    next_stack: StackId,
    /// All scopes up to this id were written.
    scopes_up_to: usize,
    /// The scopes with larger ids that were written.
    later_scopes: HashSet<ScopeId>,
    threads: usize,
}

impl Default for WrittenRows {
    fn default() -> Self {
        Self { next_stack: StackId(1), scopes_up_to: 0, later_scopes: HashSet::new(), threads: 1 }
    }
}

// SAFETY: the pointers are compared, never dereferenced.
#[allow(unsafe_code)]
unsafe impl Send for Stream {}

impl Stream {
    /// Creates or replaces the file and writes the head.
    ///
    /// # Errors
    /// Fails when the file cannot be created or written.
    pub(crate) fn create(path: &Path, options: &Options) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let Destination { file, path, note } = Destination::choose(path)?;
        let part = options.max_bytes.map(|_| {
            let (recording, number) = (RandomState::new().hash_one(&path), free_number(&path));
            Part { recording, number, first: number, ..Part::default() }
        });
        let file = PartFile::first(file, options.max_bytes)?;
        let binaries_seen = binaries_generation();
        let writer = create_writer(file, options, part.as_ref())?;
        Ok(Self {
            path,
            writer,
            options: options.clone(),
            written: WrittenRows::default(),
            part,
            previous: None,
            head_bytes: 0,
            counts: EventCounts::default(),
            newest_ticks: 0,
            partly_written: HashMap::new(),
            binaries_seen,
            marks_seen: 0,
            events: Vec::new(),
            is_broken: false,
            note,
            error: None,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns the generation of the list of binaries in the head of the file; in a forked child, the generation of the
    /// list written last.
    pub(super) fn binaries_seen(&self) -> u32 {
        self.binaries_seen
    }

    /// Returns the maximum total size of all parts, in bytes; `None` if there is no limit.
    pub(super) fn max_bytes(&self) -> Option<u64> {
        self.options.max_bytes
    }

    /// Appends a full chunk.
    pub(super) fn append_full_chunk(&mut self, recorder: &Recorder, chunk: &Arc<Chunk<Event>>) {
        let written = self.partly_written.remove(&Arc::as_ptr(chunk)).unwrap_or(0);
        self.append_rows(recorder, chunk, written, chunk.len());
    }

    /// Appends the events of a chunk that is still being filled.
    pub(super) fn append_partial_chunk(&mut self, recorder: &Recorder, chunk: &Arc<Chunk<Event>>) {
        let len = chunk.len();
        let written = self.partly_written.insert(Arc::as_ptr(chunk), len).unwrap_or(0);
        self.append_rows(recorder, chunk, written, len);
    }

    fn append_rows(&mut self, recorder: &Recorder, chunk: &Chunk<Event>, from: usize, to: usize) {
        let since = settings::start_ticks();
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let is_wanted = |event: &Event| event.ticks >= since && settings::is_wanted(event.action);
        events.extend(chunk.iter_rows(from..to).filter(is_wanted));
        if !events.is_empty() {
            self.attempt(|stream| stream.try_write(recorder, &events));
        }
        self.events = events;
    }

    /// Finishes the recording.
    pub(super) fn finish(self, recorder: &Recorder, snapshot: &Snapshot) -> io::Result<()> {
        if self.is_broken {
            return self
                .error
                .map_or(Ok(()), |why| Err(io::Error::other(format!("the stream ended too early: {why}"))));
        }
        let Self { mut writer, mut written, marks_seen, .. } = self;
        // Live blocks and sums may contain ids that are in no event.
        written.write_all(recorder, &mut writer)?;
        writer.modules(&snapshot.modules)?;
        writer.clock(snapshot.clock.last)?;
        writer.end_tables(snapshot)?;
        writer.operators(&snapshot.operators)?;
        writer.marks(&marks::since(marks_seen).0)?;
        // Events that the ring dropped are in the file, so none count as dropped.
        let kept = |device: &DeviceStatistics| DeviceStatistics { dropped: 0, ..*device };
        let devices: Vec<_> = snapshot.devices.iter().map(kept).collect();
        writer.finish(&snapshot.blocks, &snapshot.segments, &devices).map(drop)
    }

    /// Appends the memory that each scope has allocated so far, the counted peak of the heap, and the running tasks.
    pub(super) fn append_sums(
        &mut self,
        sums: &ScopeSums,
        peak: Option<&CountedPeak>,
        tasks: &TaskTable,
    ) -> io::Result<()> {
        self.writer.scopes(&self.written.new_scopes())?;
        self.writer.scope_sums(sums)?;
        self.writer.counted_peak(peak)?;
        self.writer.tasks(tasks)
    }

    /// Appends the marks since the last call.
    pub(super) fn append_marks(&mut self) {
        let (new, seen) = marks::since(self.marks_seen);
        self.marks_seen = seen;
        if !new.is_empty() {
            self.attempt(|stream| {
                stream.writer.threads(&stream.written.new_threads())?;
                stream.writer.marks(&new)
            });
        }
    }

    /// Returns whether a new part is due: there are parts, and this one has grown to `times` the size of a part.
    pub(super) fn is_part_due(&mut self, times: u64) -> bool {
        let file = self.writer.output_mut();
        !self.is_broken
            && file.due_bytes().is_some_and(|due| file.written() >= due.max(2 * self.head_bytes) * times)
    }

    /// Continues in a new file, which begins with all tables and the live blocks. The file has a temporary name until
    /// it [takes its place](Self::take_place).
    ///
    /// This does not wait for hooks. A block is stamped while its shard is locked, so the live table, which is read after
    /// the start moment of the part, contains all blocks stamped up to that moment, except those freed since. All events
    /// after the moment are written to the new file. They must be written before the file takes its place, so that no
    /// file lacks both a block and its free.
    pub(super) fn begin_part(&mut self, recorder: &Recorder) {
        self.take_place();
        self.attempt(|stream| {
            let result = stream.try_begin_part(recorder);
            result.inspect_err(|_| remove_new_part(&stream.path))
        });
    }

    fn try_begin_part(&mut self, recorder: &Recorder) -> io::Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        let moment = clock::ticks().max(self.newest_ticks);
        let devices = self.counts.rows();
        let next = Part { number: part.number + 1, since_ticks: moment, devices, ..part.clone() };
        let file = self.writer.output_mut().next(&self.path)?;
        let mut writer = create_writer(file, &self.options, Some(&next))?;
        let mut written = WrittenRows::default();
        let since = settings::start_ticks();
        // If these events are skipped, a reader cannot know when a block is freed.
        let follows_blocks = [Action::Alloc, Action::Free].into_iter().all(settings::is_wanted);
        let mut blocks = if follows_blocks { recorder.live.blocks() } else { Vec::new() };
        blocks.retain(|block| block.ticks >= since);
        let segments = recorder.segments.between(since, moment);
        written.write_all(recorder, &mut writer)?;
        writer.opening(&blocks, &segments)?;
        writer.driver(&recorder.driver_readings())?;
        writer.tasks(&crate::tasks::running())?;
        writer.clock(clock::reading())?;
        self.head_bytes = writer.output_mut().written();
        self.previous = Some(std::mem::replace(&mut self.writer, writer));
        (self.written, self.part) = (written, Some(next));
        Ok(())
    }

    /// Lets the new part take the place of the previous one, if a part was begun.
    pub(super) fn take_place(&mut self) {
        let Some(mut previous) = self.previous.take() else { return };
        let Some(number) = self.part.as_ref().map(|part| part.number) else { return };
        if self.is_broken {
            return remove_new_part(&self.path);
        }
        self.attempt(|stream| {
            previous.next_part(number)?;
            let placed =
                stream.writer.output_mut().take_place(previous.output_mut(), number - 1, &stream.path);
            placed.inspect_err(|_| remove_new_part(&stream.path))
        });
    }

    /// Calls `write` unless writing has failed before. A failure ends the stream, because a file with a gap would be
    /// misleading. The failure is reported later, when no lock is held.
    pub(super) fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.is_broken {
            return;
        }
        if let Err(error) = write(self) {
            self.fail(error);
        }
    }

    /// Ends the stream for this reason.
    pub(super) fn fail(&mut self, why: impl Display) {
        self.is_broken = true;
        self.error = Some(why.to_string());
    }

    /// Returns the messages for the user and removes them: the recording's path if it differs from the requested one,
    /// and the error.
    pub(super) fn take_messages(&mut self) -> Vec<String> {
        let failed = |why| format!("streaming to {} failed and ends here: {why}", self.path.display());
        let error = self.error.take().map(failed);
        self.note.take().into_iter().chain(error).collect()
    }

    fn try_write(&mut self, recorder: &Recorder, events: &[Event]) -> io::Result<()> {
        let modules = binaries_generation();
        if fork::generation() > 0 && modules != self.binaries_seen {
            // A forked child has no stream thread that would write the list. In a forked child, making the list does not
            // take the dynamic linker's lock.
            self.binaries_seen = modules;
            self.writer.modules(&binaries::known_or_loaded())?;
        }
        self.written.write_new(recorder, events, &mut self.writer)?;
        self.writer.write_together(|writer| {
            writer.events(events)?;
            writer.clock(clock::reading())
        })?;
        if self.part.is_some() {
            for event in events {
                self.counts.add(event);
                self.newest_ticks = self.newest_ticks.max(event.ticks);
            }
        }
        Ok(())
    }
}

/// Creates a writer for a file and writes the head.
fn create_writer(
    file: PartFile,
    options: &Options,
    part: Option<&Part>,
) -> io::Result<RecordingWriter<PartFile>> {
    let mut writer = RecordingWriter::new(file, &collect::meta(options, false), clock::first_reading())?;
    if let Some(part) = part {
        writer.part(part)?;
    }
    writer.modules(&binaries::known_or_loaded())?;
    Ok(writer)
}

/// The number of stacks copied at once: limited so that other threads wait only briefly for the table.
const STACKS_AT_ONCE: usize = 4096;

impl WrittenRows {
    /// Writes the rows whose ids are in the events but not in the file. If there are no such rows, this takes no lock and
    /// reads no table.
    fn write_new(
        &mut self,
        recorder: &Recorder,
        events: &[Event],
        writer: &mut RecordingWriter<PartFile>,
    ) -> io::Result<()> {
        if events.iter().any(|event| event.stack >= self.next_stack) {
            self.write_stacks(recorder, writer)?;
        }
        let is_new = |id: ScopeId| id.index() > self.scopes_up_to && !self.later_scopes.contains(&id);
        if events.iter().any(|event| is_new(event.scope)) {
            writer.scopes(&self.new_scopes())?;
        }
        if events.iter().any(|event| event.thread.index() >= self.threads) {
            writer.threads(&self.new_threads())?;
        }
        Ok(())
    }

    /// Writes all rows that are not in the file.
    fn write_all(&mut self, recorder: &Recorder, writer: &mut RecordingWriter<PartFile>) -> io::Result<()> {
        self.write_stacks(recorder, writer)?;
        writer.scopes(&self.new_scopes())?;
        writer.threads(&self.new_threads())
    }

    fn write_stacks(
        &mut self,
        recorder: &Recorder,
        writer: &mut RecordingWriter<PartFile>,
    ) -> io::Result<()> {
        let mut stacks = StackTable::default();
        loop {
            recorder.stacks.copy(self.next_stack, STACKS_AT_ONCE, &mut stacks);
            let count = stacks.len() - 1;
            if count == 0 {
                return Ok(());
            }
            writer.stacks(self.next_stack, (1..=count).map(|row| stacks.get(StackId(row as u32))))?;
            self.next_stack = StackId(self.next_stack.0 + count as u32);
        }
    }

    fn new_threads(&mut self) -> Vec<(ThreadId, Thread)> {
        let first = self.threads;
        let new = thread_names::threads_since(first);
        self.threads += new.len();
        let id = |row: usize| ThreadId((first + row) as u32);
        new.into_iter().enumerate().map(|(row, thread)| (id(row), thread)).collect()
    }

    fn new_scopes(&mut self) -> Vec<(ScopeId, Scope)> {
        let mut new = Vec::new();
        for node in scope::nodes_after(self.scopes_up_to) {
            if self.later_scopes.insert(node.id) {
                new.push((node.id, node.row()));
            }
        }
        // An id may be assigned before its scope is visible, so ids are not written in order.
        while self.later_scopes.remove(&ScopeId(self.scopes_up_to as u32 + 1)) {
            self.scopes_up_to += 1;
        }
        new
    }
}
