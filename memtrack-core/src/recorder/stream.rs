//! A recording on its way to a file while the program runs: events are appended after the stacks, scopes and threads that
//! they name. `streaming` says who does it and when.

use super::chunk::Chunk;
use super::{Options, Recorder, binaries, clock, collect, settings, threads};
use crate::event::{Event, ScopeId, StackId, ThreadId};
use crate::own_file::OwnFile;
use crate::scope;
use crate::snapshot::recording::RecordingWriter;
use crate::snapshot::{DeviceStatistics, Scope, Snapshot, StackTable};
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An open recording.
pub(crate) struct Stream {
    path: PathBuf,
    pub(super) writer: RecordingWriter<OwnFile>,
    written: Tables,
    /// Of chunks that were not full yet: how many of their events were written.
    partly: HashMap<*const Chunk<Event>, usize>,
    /// The events that are being written; kept to save its memory.
    events: Vec<Event>,
    broken: bool,
    /// What went wrong and was not told yet.
    trouble: Option<String>,
    /// Tells this stream from an earlier one.
    pub(super) number: u32,
}

/// What of the tables a file has.
struct Tables {
    next_stack: StackId,
    /// By id, whether the scope was written.
    scopes: Vec<bool>,
    threads: usize,
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
        let file = OwnFile::new(File::create(path)?)?;
        let mut writer = RecordingWriter::new(file, &head, clock::first_reading())?;
        writer.modules(&binaries::loaded())?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            written: Tables { next_stack: StackId(1), scopes: Vec::new(), threads: 1 },
            partly: HashMap::new(),
            events: Vec::new(),
            broken: false,
            trouble: None,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Appends a full chunk.
    pub(super) fn full_chunk(&mut self, recorder: &Recorder, chunk: &Arc<Chunk<Event>>) {
        let written = self.partly.remove(&Arc::as_ptr(chunk)).unwrap_or(0);
        self.rows(recorder, chunk, written, chunk.len());
    }

    /// Appends what a chunk that is still being filled holds.
    pub(super) fn part_of_chunk(&mut self, recorder: &Recorder, chunk: &Arc<Chunk<Event>>) {
        let len = chunk.len();
        let written = self.partly.insert(Arc::as_ptr(chunk), len).unwrap_or(0);
        self.rows(recorder, chunk, written, len);
    }

    fn rows(&mut self, recorder: &Recorder, chunk: &Chunk<Event>, from: usize, to: usize) {
        let since = settings::start_ticks();
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        events.extend(chunk.iter_rows(from..to).filter(|event| event.ticks >= since));
        if !events.is_empty() {
            self.attempt(|stream| stream.try_write(recorder, &events));
        }
        self.events = events;
    }

    /// Ends the recording.
    pub(crate) fn finish(self, snapshot: &Snapshot) -> io::Result<()> {
        if self.broken {
            return self
                .trouble
                .map_or(Ok(()), |why| Err(io::Error::other(format!("the stream ended too early: {why}"))));
        }
        let Self { mut writer, .. } = self;
        writer.modules(&snapshot.modules)?;
        writer.clock(snapshot.clock.last)?;
        writer.driver(&snapshot.driver)?;
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

    /// Writes unless writing has failed before. A failure ends the stream, because a file with a hole would mislead; it is
    /// told later, under no lock.
    pub(super) fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.broken {
            return;
        }
        if let Err(error) = write(self) {
            self.fail(error);
        }
    }

    /// Ends the stream for this reason.
    pub(super) fn fail(&mut self, why: impl Display) {
        self.broken = true;
        self.trouble = Some(why.to_string());
    }

    /// What went wrong, for the user, once.
    pub(super) fn take_trouble(&mut self) -> Option<String> {
        let why = self.trouble.take()?;
        Some(format!("streaming to {} failed and ends here: {why}", self.path.display()))
    }

    fn try_write(&mut self, recorder: &Recorder, events: &[Event]) -> io::Result<()> {
        self.written.bring_up_to(recorder, events, &mut self.writer)?;
        self.writer.together(|writer| {
            writer.events(events)?;
            writer.clock(clock::reading())
        })
    }
}

/// Stacks that are copied at once: nobody waits long for the table meanwhile.
const STACKS_AT_ONCE: usize = 4096;

impl Tables {
    /// Writes what the events name and the file does not have. Where they name nothing new this takes no lock and looks at
    /// no table.
    fn bring_up_to(
        &mut self,
        recorder: &Recorder,
        events: &[Event],
        writer: &mut RecordingWriter<OwnFile>,
    ) -> io::Result<()> {
        if events.iter().any(|event| event.stack >= self.next_stack) {
            let mut stacks = StackTable::default();
            loop {
                recorder.stacks.copy(self.next_stack, STACKS_AT_ONCE, &mut stacks);
                let count = stacks.len() - 1;
                if count == 0 {
                    break;
                }
                writer.stacks(self.next_stack, (1..=count).map(|row| stacks.get(StackId(row as u32))))?;
                self.next_stack = StackId(self.next_stack.0 + count as u32);
            }
        }
        let is_new =
            |id: ScopeId| id != ScopeId::NONE && !self.scopes.get(id.index()).is_some_and(|known| *known);
        if events.iter().any(|event| is_new(event.scope)) {
            let scopes = self.new_scopes();
            writer.scopes(&scopes)?;
        }
        if events.iter().any(|event| event.thread.index() >= self.threads) {
            let new: Vec<_> = threads::threads_since(self.threads);
            let first = self.threads;
            self.threads += new.len();
            let new: Vec<_> =
                new.into_iter().enumerate().map(|(row, one)| (ThreadId((first + row) as u32), one)).collect();
            writer.threads(&new)?;
        }
        Ok(())
    }

    fn new_scopes(&mut self) -> Vec<(ScopeId, Scope)> {
        let mut new = Vec::new();
        for node in scope::all_nodes() {
            if self.scopes.len() <= node.id.index() {
                self.scopes.resize(node.id.index() + 1, false);
            }
            if !std::mem::replace(&mut self.scopes[node.id.index()], true) {
                let parent = node.parent.map_or(ScopeId::NONE, |parent| parent.id);
                new.push((node.id, Scope { parent, kind: node.kind, name: node.name.to_owned() }));
            }
        }
        new.sort_by_key(|(id, _)| *id);
        new
    }
}
