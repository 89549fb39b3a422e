//! A recording on its way to a file while the program runs: whenever a thread's chunk is full, its events are appended,
//! after the stacks, scopes and threads they name. The thread that filled the chunk does the writing (some 100 µs per
//! 4,096 events): handed to another thread, it could be lost when the program is killed.

use super::chunk::Chunk;
use super::{Options, Recorder, binaries, clock, collect, settings, threads};
use crate::event::{Event, ScopeId, StackId, ThreadId};
use crate::scope;
use crate::snapshot::recording::RecordingWriter;
use crate::snapshot::{DeviceStatistics, Scope, ScopeSums, Snapshot};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An open recording.
pub(crate) struct Stream {
    path: PathBuf,
    pub(super) writer: RecordingWriter<File>,
    next_stack: StackId,
    /// All scopes up to that id were written.
    scopes_up_to: usize,
    /// Of those after it, which.
    later_scopes: HashSet<ScopeId>,
    threads: usize,
    /// Of chunks that were not full yet: how many of their events were written.
    partly: HashMap<*const Chunk<Event>, usize>,
    broken: bool,
    /// Tells this stream from an earlier one.
    pub(super) number: u32,
}

// SAFETY: the pointers are compared, never followed.
#[allow(unsafe_code)]
unsafe impl Send for Stream {}

impl Stream {
    /// Creates the file, or replaces it, and writes the head.
    ///
    /// # Errors
    /// When the file cannot be created or written.
    pub(crate) fn create(path: &Path, options: &Options) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let head = collect::meta(options, false);
        let mut writer = RecordingWriter::new(File::create(path)?, &head, clock::first_reading())?;
        writer.modules(&binaries::loaded())?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            next_stack: StackId(1),
            scopes_up_to: 0,
            later_scopes: HashSet::new(),
            threads: 1,
            partly: HashMap::new(),
            broken: false,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Appends a full chunk.
    pub(crate) fn full_chunk(&mut self, recorder: &Recorder, chunk: &Arc<Chunk<Event>>) {
        let written = self.partly.remove(&Arc::as_ptr(chunk)).unwrap_or(0);
        let since = settings::start_ticks();
        let events: Vec<Event> = chunk.iter().skip(written).filter(|event| event.ticks >= since).collect();
        self.write(recorder, &events);
    }

    /// Appends what a chunk that is still being filled holds.
    pub(crate) fn part_of_chunk(
        &mut self,
        recorder: &Recorder,
        chunk: *const Chunk<Event>,
        events: Vec<Event>,
    ) {
        let since = settings::start_ticks();
        let written = self.partly.insert(chunk, events.len()).unwrap_or(0);
        let new: Vec<Event> = events.into_iter().skip(written).filter(|event| event.ticks >= since).collect();
        self.write(recorder, &new);
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self, snapshot: &Snapshot) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        // Some scopes have sums and no event.
        let scopes = self.new_scopes();
        let Self { mut writer, .. } = self;
        writer.scopes(&scopes)?;
        writer.modules(&snapshot.modules)?;
        writer.clock(snapshot.clock.last)?;
        writer.driver(&snapshot.driver)?;
        if let Some(sums) = &snapshot.scope_sums {
            writer.scope_sums(sums)?;
        }
        // What the ring dropped is in the file.
        let kept = |device: &DeviceStatistics| DeviceStatistics { dropped: 0, ..*device };
        let devices: Vec<_> = snapshot.devices.iter().map(kept).collect();
        writer.finish(&snapshot.blocks, &snapshot.segments, &devices).map(drop)
    }

    /// Ends it without a trace: there was nothing to record.
    pub(crate) fn discard(self) -> io::Result<()> {
        drop(self.writer);
        std::fs::remove_file(&self.path)
    }

    fn write(&mut self, recorder: &Recorder, events: &[Event]) {
        if !events.is_empty() {
            self.attempt(|stream| stream.try_write(recorder, events));
        }
    }

    /// Writes unless writing has failed before. A failure is said once and ends the stream: a file with a hole would
    /// mislead.
    pub(super) fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.broken {
            return;
        }
        if let Err(error) = write(self) {
            self.broken = true;
            eprintln!("memtrack: streaming to {} failed and ends here: {error}", self.path.display());
        }
    }

    fn try_write(&mut self, recorder: &Recorder, events: &[Event]) -> io::Result<()> {
        let writer = &mut self.writer;
        self.next_stack = recorder.stacks.since(self.next_stack, |first, table| {
            writer.stacks(first, (first.index()..table.len()).map(|id| table.get(StackId(id as u32))))
        })?;
        let scopes = self.new_scopes();
        self.writer.scopes(&scopes)?;
        let threads = threads::threads();
        if threads.len() > self.threads {
            let new = threads.into_iter().enumerate().skip(self.threads);
            let new: Vec<_> = new.map(|(id, thread)| (ThreadId(id as u32), thread)).collect();
            self.writer.threads(&new)?;
            self.threads += new.len();
        }
        self.writer.events(events)?;
        self.writer.clock(clock::reading())
    }

    /// Appends what each scope has allocated so far.
    pub(super) fn scope_sums(&mut self, sums: &ScopeSums) -> io::Result<()> {
        let scopes = self.new_scopes();
        self.writer.scopes(&scopes)?;
        self.writer.scope_sums(sums)
    }

    fn new_scopes(&mut self) -> Vec<(ScopeId, Scope)> {
        let mut new = Vec::new();
        for node in scope::nodes_after(self.scopes_up_to) {
            if self.later_scopes.insert(node.id) {
                new.push((node.id, node.row()));
            }
        }
        // An id may be taken whose scope is not there yet.
        while self.later_scopes.remove(&ScopeId(self.scopes_up_to as u32 + 1)) {
            self.scopes_up_to += 1;
        }
        new
    }
}

impl Recorder {
    /// Appends to the stream what lies in chunks that are not full.
    #[allow(unsafe_code)]
    pub(super) fn stream_parts(&self) {
        let mut store = self.store();
        let Some(mut stream) = store.stream.take() else { return };
        for state in threads::states() {
            for slot in &state.slots {
                let chunk = slot.chunk.load(Ordering::Acquire);
                // SAFETY: a thread takes a chunk out of its slot only under the store's lock, which is held here.
                if let Some(events) = unsafe { chunk.as_ref() }.map(|chunk| chunk.iter().collect::<Vec<_>>())
                {
                    stream.part_of_chunk(self, chunk, events);
                }
            }
        }
        store.stream = Some(stream);
    }
}
