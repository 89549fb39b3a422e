//! Recordings as files on disk. A file is written beside its place and renamed, so that nobody ever sees half of one.

use super::{ReadReport, RecordingError, RecordingWriter, load_from};
use super::{embedded, part};
use crate::event::{ScopeId, StackId, ThreadId};
use crate::replacing_file::ReplacingFile;
use crate::snapshot::Snapshot;
use std::io::{self, BufReader, Write};
use std::path::Path;

/// Events handed to the writer at once.
const EVENTS_AT_ONCE: usize = 64 << 10;

impl Snapshot {
    /// Writes the snapshot as a recording to `path`, replacing what is there. The file appears whole or not at all.
    ///
    /// # Errors
    /// When the folder or the file cannot be written; what was there before is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut file = ReplacingFile::create(path.as_ref())?;
        self.save_to(&mut file)?;
        file.commit()
    }

    /// Writes the snapshot as a recording to `output` and gives it back. Unless [`Meta::complete`] is set, the end
    /// mark is left out and readers will say that the recording was not ended.
    ///
    /// # Errors
    /// When `output` cannot be written.
    ///
    /// [`Meta::complete`]: crate::snapshot::Meta::complete
    pub fn save_to<W: Write>(&self, output: W) -> io::Result<W> {
        let mut writer = RecordingWriter::new(output, &self.meta, self.clock.first)?;
        if self.pytorch.is_some() {
            return embedded::save(self, writer);
        }
        writer.modules(&self.modules)?;
        writer.stacks(StackId(1), (1..self.stacks.len()).map(|id| self.stacks.get(StackId(id as u32))))?;
        let scopes: Vec<_> = (0..).map(ScopeId).zip(self.scopes.rows.iter().cloned()).skip(1).collect();
        writer.scopes(&scopes)?;
        let threads: Vec<_> = (0..).map(ThreadId).zip(self.threads.iter().cloned()).skip(1).collect();
        writer.threads(&threads)?;
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE.min(self.events.len()));
        for row in 0..self.events.len() {
            events.push(self.events.get(row));
            if events.len() == EVENTS_AT_ONCE || row + 1 == self.events.len() {
                writer.events(&events)?;
                events.clear();
            }
        }
        writer.clock(self.clock.last)?;
        writer.driver(&self.driver)?;
        writer.sampling(self.sampling.as_ref())?;
        writer.folded(&self.folded)?;
        if let Some(sums) = &self.scope_sums {
            writer.scope_sums(sums)?;
        }
        writer.close(&self.blocks, &self.segments, &self.devices, self.meta.complete)
    }

    /// Reads the recording at `path` to its last whole chunk; see [`load_from`]. Of a recording in parts, those that lie
    /// beside it are read with it.
    ///
    /// # Errors
    /// When the file cannot be read, or is no recording that this build knows.
    pub fn load(path: impl AsRef<Path>) -> Result<(Self, ReadReport), RecordingError> {
        load_from(BufReader::with_capacity(64 << 10, part::opened(path.as_ref())?))
    }
}
