//! The writer of `.memtrack` files. The recorder calls it while the program runs (`stream_to`), and
//! [`Snapshot::save`](memtrack_model::snapshot::Snapshot::save) at the end; each call writes complete chunks to the
//! operating system, so that a killed program loses only data that was not written yet.

use super::chunk::{self, Budget, Kind};
use super::part::Part;
use super::payload;
use super::varint::put;
use super::{FORMAT_VERSION, MAGIC, PROCESS_VERSION};
use memtrack_model::event::{Event, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{
    AddressSpace, CountedPeak, DeviceStatistics, DriverReading, Folded, KnownNames, LiveBlock, Marks, Meta,
    Module, OperatorLines, OperatorLog, ProcessRow, ResidentReading, Scope, ScopeSums, Segment, Snapshot,
    TaskTable, Thread, Unrecorded,
};
use std::io::{self, Write};

/// The maximum number of events per chunk.
const MAX_EVENTS_PER_CHUNK: usize = 4096;
/// The maximum number of rows of other tables per chunk.
const MAX_ROWS_PER_CHUNK: usize = 32 << 10;
/// The maximum number of addresses with names per chunk: with inlined functions, each takes a few hundred bytes.
const MAX_ADDRESSES_PER_CHUNK: usize = 4096;
/// Tables of texts and stacks start a new chunk when the current one has this many bytes.
const MIN_CHUNK_BYTES: usize = 1 << 20;

/// Writes a recording chunk by chunk.
///
/// The caller assigns the ids. A stack, scope or thread must be written before the first event that refers to it; a
/// reader replaces an unknown id with "none". After an error the file may end in an incomplete chunk, so every further
/// call fails too.
#[derive(Debug)]
pub struct RecordingWriter<W: Write> {
    output: W,
    budget: Budget,
    /// A payload before compression; kept to reuse its memory.
    raw: Vec<u8>,
    /// Complete chunks that were not written yet.
    chunks: Vec<u8>,
    /// Whether complete chunks are kept until [`Self::write_together`] ends.
    is_gathering: bool,
    /// Whether a write has failed.
    has_failed: bool,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording: header, `meta`, and a first reading of the clock (ticks, nanoseconds since the Unix
    /// epoch). The reader sets [`Meta::complete`] according to the end mark, not according to `meta`.
    ///
    /// # Errors
    /// Fails when `output` cannot be written.
    pub fn new(output: W, meta: &Meta, clock: (u64, u64)) -> io::Result<Self> {
        Self::begin(output, PROCESS_VERSION, meta, clock)
    }

    /// Begins the recording of a run, which has several processes: header, the `meta` of the first process, and a first reading
    /// of the clock. [`Self::process`] must be called before anything else is written.
    ///
    /// # Errors
    /// Fails when `output` cannot be written.
    pub fn new_run(output: W, meta: &Meta, clock: (u64, u64)) -> io::Result<Self> {
        Self::begin(output, FORMAT_VERSION, meta, clock)
    }

    fn begin(output: W, version: u32, meta: &Meta, clock: (u64, u64)) -> io::Result<Self> {
        let mut writer = Self {
            output,
            budget: Budget::default(),
            raw: Vec::new(),
            chunks: Vec::new(),
            is_gathering: false,
            has_failed: false,
        };
        writer.chunks.extend_from_slice(&MAGIC);
        writer.chunks.extend_from_slice(&version.to_le_bytes());
        let crc = crc32fast::hash(&writer.chunks);
        writer.chunks.extend_from_slice(&crc.to_le_bytes());
        writer.push_json(chunk::META, meta)?;
        writer.push_clock(clock);
        writer.write_chunks()?;
        Ok(writer)
    }

    /// Writes the row of a process, which replaces an earlier one. Everything that is written afterwards belongs to
    /// this process.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn process(&mut self, row: &ProcessRow) -> io::Result<()> {
        self.raw.clear();
        self.raw.extend_from_slice(&row.number.to_le_bytes());
        serde_json::to_writer(&mut self.raw, row)?;
        self.push(chunk::PROCESS);
        self.write_chunks()
    }

    /// Writes how many processes are not recorded, by reason. The last call replaces earlier ones.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn unrecorded(&mut self, unrecorded: &Unrecorded) -> io::Result<()> {
        self.push_json(chunk::UNRECORDED, unrecorded)?;
        self.write_chunks()
    }

    /// Selects the process that everything written afterwards belongs to. Its row must have been written before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn select_process(&mut self, number: u32) -> io::Result<()> {
        self.write_raw_chunk(chunk::PROCESS, &number.to_le_bytes())
    }

    /// Writes the description of a process of a run.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn meta(&mut self, meta: &Meta) -> io::Result<()> {
        self.push_json(chunk::META, meta)?;
        self.write_chunks()
    }

    /// Writes stacks (return addresses, innermost first) whose ids count up from `first`.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn stacks<I>(&mut self, first: StackId, stacks: I) -> io::Result<()>
    where
        I: IntoIterator,
        I::Item: AsRef<[u64]>,
    {
        let (mut next, mut rows, mut count) = (first.0, Vec::new(), 0u32);
        for stack in stacks {
            payload::put_stack(&mut rows, stack.as_ref());
            count += 1;
            if rows.len() >= MIN_CHUNK_BYTES {
                self.push_stacks(next, count, &rows);
                (next, count) = (next + count, 0);
                rows.clear();
            }
        }
        if count > 0 {
            self.push_stacks(next, count, &rows);
        }
        self.write_chunks()
    }

    fn push_stacks(&mut self, first: u32, count: u32, rows: &[u8]) {
        self.raw.clear();
        put(&mut self.raw, u64::from(first));
        put(&mut self.raw, u64::from(count));
        self.raw.extend_from_slice(rows);
        self.push(chunk::STACKS);
    }

    /// Writes rows of the scope table. Ids may come in any order and leave gaps; names are truncated to 1 KiB.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn scopes(&mut self, scopes: &[(ScopeId, Scope)]) -> io::Result<()> {
        self.push_named_rows(chunk::SCOPES, scopes, |out, (id, scope)| payload::put_scope(out, *id, scope))
    }

    /// Writes rows of the thread table. Ids may come in any order and leave gaps; names are truncated to 1 KiB.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn threads(&mut self, threads: &[(ThreadId, Thread)]) -> io::Result<()> {
        self.push_named_rows(chunk::THREADS, threads, |out, (id, thread)| {
            payload::put_thread(out, *id, thread)
        })
    }

    fn push_named_rows<T>(
        &mut self,
        kind: Kind,
        rows: &[T],
        put_row: impl Fn(&mut Vec<u8>, &T),
    ) -> io::Result<()> {
        let mut coded = Vec::new();
        let mut count = 0u64;
        for (place, row) in rows.iter().enumerate() {
            put_row(&mut coded, row);
            count += 1;
            if coded.len() >= MIN_CHUNK_BYTES || place + 1 == rows.len() {
                self.raw.clear();
                put(&mut self.raw, count);
                self.raw.extend_from_slice(&coded);
                self.push(kind);
                coded.clear();
                count = 0;
            }
        }
        self.write_chunks()
    }

    /// Writes events. The events of a thread must be in order. Those of different threads may be in any order, because
    /// the reader sorts by ticks.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn events(&mut self, events: &[Event]) -> io::Result<()> {
        for events in events.chunks(MAX_EVENTS_PER_CHUNK) {
            self.raw.clear();
            payload::put_events(&mut self.raw, events);
            self.push(chunk::EVENTS);
        }
        self.write_chunks()
    }

    /// Writes the loaded binaries, in addition to those of earlier calls.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn modules(&mut self, modules: &[Module]) -> io::Result<()> {
        for modules in modules.chunks(1024) {
            self.push_json(chunk::MODULES, modules)?;
        }
        self.write_chunks()
    }

    /// Writes a reading of the clock: ticks, and nanoseconds since the Unix epoch. The reader uses the first and the
    /// last reading, so frequent readings keep the times of a killed program accurate.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn clock(&mut self, clock: (u64, u64)) -> io::Result<()> {
        self.push_clock(clock);
        self.write_chunks()
    }

    /// Writes readings of the CUDA driver; writes nothing if there are none. The last call replaces earlier ones.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn driver(&mut self, readings: &[DriverReading]) -> io::Result<()> {
        if !readings.is_empty() {
            self.push_json(chunk::DRIVER, readings)?;
        }
        self.write_chunks()
    }

    /// Writes the tables of a snapshot that are known at the end, apart from its end state: the driver's readings, the sums of
    /// scopes, and what was sampled, counted, left out or beside the blocks, and the tasks. Each one replaces earlier tables of its kind.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn end_tables(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.driver(&snapshot.driver)?;
        if let Some(sampling) = &snapshot.sampling {
            self.push_json(chunk::SAMPLING, sampling)?;
        }
        self.counted_peak(snapshot.counted_peak.as_ref())?;
        if snapshot.folded != Folded::default() {
            self.push_json(chunk::FOLDED, &snapshot.folded)?;
        }
        if let Some(sums) = &snapshot.scope_sums {
            self.scope_sums(sums)?;
        }
        for reading in &snapshot.resident {
            self.resident(reading)?;
        }
        self.tasks(&snapshot.tasks)?;
        self.address_space(snapshot.address_space.as_ref())
    }

    /// Writes the counted peak of the host heap; writes nothing for `None`. The last call replaces earlier ones.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn counted_peak(&mut self, peak: Option<&CountedPeak>) -> io::Result<()> {
        if let Some(peak) = peak {
            self.push_json(chunk::COUNTED_PEAK, peak)?;
        }
        self.write_chunks()
    }

    /// Writes what the address space held beside the recorded blocks; writes nothing for `None`. The last call replaces
    /// earlier ones.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn address_space(&mut self, space: Option<&AddressSpace>) -> io::Result<()> {
        if let Some(space) = space {
            self.push_json(chunk::ADDRESS_SPACE, space)?;
        }
        self.write_chunks()
    }

    /// Writes a reading of the resident memory, in addition to those of earlier calls. If its pages are in too many pieces
    /// ([`MAX_RESIDENT_LENGTHS`](crate::MAX_RESIDENT_LENGTHS)), some mappings are written without them.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn resident(&mut self, reading: &ResidentReading) -> io::Result<()> {
        self.raw.clear();
        crate::resident::put_reading(&mut self.raw, reading);
        self.push(chunk::RESIDENT);
        self.write_chunks()
    }

    /// Writes the number and bytes of each scope's allocations. The last call replaces earlier ones. The scopes must be
    /// written before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn scope_sums(&mut self, sums: &ScopeSums) -> io::Result<()> {
        for (rows, is_last) in pieces(&sums.rows) {
            self.raw.clear();
            payload::put_scope_sums(&mut self.raw, sums, rows, is_last);
            self.push(chunk::SCOPE_SUMS);
        }
        self.write_chunks()
    }

    /// Writes the program's reports about its operators, in addition to those of earlier calls; writes nothing if there
    /// are none. The last count of omitted lines replaces earlier ones. The scopes and threads must be written before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn operators(&mut self, log: &OperatorLog) -> io::Result<()> {
        if log.is_empty() {
            return self.write_chunks();
        }
        // The count of omitted lines is written even where there are no lines.
        let no_lines = [OperatorLines::default()];
        for piece in if log.pieces.is_empty() { &no_lines } else { &log.pieces[..] } {
            self.raw.clear();
            payload::put_operators(&mut self.raw, log.left_out, piece.base_ticks, &piece.lines);
            self.push(chunk::OPERATORS);
        }
        self.write_chunks()
    }

    /// Writes the program's marks (named points in time), in addition to those of earlier calls; writes nothing if there
    /// are none. The numbers of omitted marks are added up. The threads must be written before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn marks(&mut self, marks: &Marks) -> io::Result<()> {
        if marks.is_empty() {
            return self.write_chunks();
        }
        let mut left_out = marks.left_out;
        for (rows, _) in pieces(&marks.rows) {
            self.raw.clear();
            payload::put_marks(&mut self.raw, marks, rows, std::mem::take(&mut left_out));
            self.push(chunk::MARKS);
        }
        self.write_chunks()
    }

    /// Writes the program's tasks; writes nothing if there are none. The last call replaces earlier ones. The scopes must be written
    /// before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn tasks(&mut self, tasks: &TaskTable) -> io::Result<()> {
        if tasks.is_empty() {
            return self.write_chunks();
        }
        let no_places = TaskTable::default();
        for (number, (rows, is_last)) in pieces(&tasks.rows).enumerate() {
            self.raw.clear();
            // The first piece has the places.
            payload::put_tasks(&mut self.raw, if number == 0 { tasks } else { &no_places }, rows, is_last);
            self.push(chunk::TASKS);
        }
        self.write_chunks()
    }

    /// Writes the names of return addresses, in addition to those of earlier calls; writes nothing if there are none.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn names(&mut self, names: &KnownNames) -> io::Result<()> {
        for piece in names.pieces(MAX_ADDRESSES_PER_CHUNK) {
            self.push_json(chunk::NAMES, &piece)?;
        }
        self.write_chunks()
    }

    /// Ends the recording with the live blocks, the segments and the counts per device; returns the output.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn finish(
        self,
        live: &[LiveBlock],
        segments: &[Segment],
        statistics: &[DeviceStatistics],
    ) -> io::Result<W> {
        self.close(live, segments, statistics, true)
    }

    /// Ends the recording like [`Self::finish`], but writes the end mark only if `complete`.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn close(
        mut self,
        live: &[LiveBlock],
        segments: &[Segment],
        statistics: &[DeviceStatistics],
        complete: bool,
    ) -> io::Result<W> {
        self.live(live, segments)?;
        self.push_json(chunk::STATISTICS, statistics)?;
        if complete {
            return self.done();
        }
        self.write_chunks()?;
        Ok(self.output)
    }

    /// Writes the live blocks and the segments at the end.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn live(&mut self, live: &[LiveBlock], segments: &[Segment]) -> io::Result<()> {
        self.push_live([chunk::LIVE, chunk::SEGMENTS, chunk::EXPANDABLE], live, segments);
        self.write_chunks()
    }

    /// Writes the counts per device at the end; writes nothing if there are none.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn statistics(&mut self, statistics: &[DeviceStatistics]) -> io::Result<()> {
        if !statistics.is_empty() {
            self.push_json(chunk::STATISTICS, statistics)?;
        }
        self.write_chunks()
    }

    /// Writes the end mark, and returns the output.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn done(mut self) -> io::Result<W> {
        self.write_raw_chunk(chunk::DONE, &[])?;
        Ok(self.output)
    }

    /// Calls `write`, and then writes all of its chunks to the operating system at once.
    pub fn write_together(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.is_gathering = true;
        let written = write(self);
        self.is_gathering = false;
        written.and_then(|()| self.write_chunks())
    }

    /// Writes the head of a part, in a recording in several files. It must be written before any table.
    pub fn part(&mut self, part: &Part) -> io::Result<()> {
        self.push_json(chunk::PART, part)?;
        self.write_chunks()
    }

    /// Writes the blocks and segments that were live at the beginning of the part.
    pub fn opening(&mut self, live: &[LiveBlock], segments: &[Segment]) -> io::Result<()> {
        let kinds = [chunk::OPENING_LIVE, chunk::OPENING_SEGMENTS, chunk::OPENING_EXPANDABLE];
        self.push_live(kinds, live, segments);
        self.write_chunks()
    }

    /// Ends the part. `number` is the number of the next part.
    pub fn next_part(&mut self, number: u64) -> io::Result<()> {
        self.write_raw_chunk(chunk::NEXT, &number.to_le_bytes())
    }

    /// Returns the output.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    fn push_live(&mut self, kinds: [Kind; 3], live: &[LiveBlock], segments: &[Segment]) {
        let [live_kind, segments_kind, expandable_kind] = kinds;
        for (blocks, is_last) in pieces(live) {
            self.raw.clear();
            payload::put_live(&mut self.raw, blocks, is_last);
            self.push(live_kind);
        }
        for segments in segments.chunks(MAX_ROWS_PER_CHUNK) {
            self.raw.clear();
            payload::put_segments(&mut self.raw, segments);
            self.push(segments_kind);
        }
        let expandable: Vec<&Segment> = segments.iter().filter(|segment| segment.is_expandable).collect();
        for expandable in expandable.chunks(MAX_ROWS_PER_CHUNK) {
            self.raw.clear();
            payload::put_expandable(&mut self.raw, expandable);
            self.push(expandable_kind);
        }
    }

    /// Writes a piece of the pickle of a snapshot from PyTorch. The first piece is
    /// empty: it identifies the content of a file that is cut off later.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn pytorch(&mut self, piece: &[u8]) -> io::Result<()> {
        self.write_raw_chunk(chunk::PYTORCH, piece)
    }

    /// Writes a chunk with this payload.
    fn write_raw_chunk(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        chunk::append(&mut self.chunks, &mut self.budget, kind, payload);
        self.write_chunks()
    }

    fn push_clock(&mut self, (ticks, epoch_ns): (u64, u64)) {
        self.raw.clear();
        self.raw.extend_from_slice(&ticks.to_le_bytes());
        self.raw.extend_from_slice(&epoch_ns.to_le_bytes());
        self.push(chunk::CLOCK);
    }

    fn push_json<T: serde::Serialize + ?Sized>(&mut self, kind: Kind, value: &T) -> io::Result<()> {
        self.raw.clear();
        serde_json::to_writer(&mut self.raw, value)?;
        if self.raw.len() > chunk::MAX_RAW_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a table of the recording exceeds 64 MiB",
            ));
        }
        self.push(kind);
        Ok(())
    }

    /// Appends the payload in `raw` as a chunk.
    fn push(&mut self, kind: Kind) {
        chunk::append(&mut self.chunks, &mut self.budget, kind, &self.raw);
    }

    /// Writes the complete chunks to the operating system.
    fn write_chunks(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write to this recording failed"));
        }
        if self.is_gathering {
            return Ok(());
        }
        let result = self.output.write_all(&self.chunks).and_then(|()| self.output.flush());
        self.has_failed = result.is_err();
        self.chunks.clear();
        result
    }
}

/// Splits rows into pieces that fit into a chunk, each with whether it is the last one. Without rows, there is one piece, so
/// that the file records that there are none.
fn pieces<T>(rows: &[T]) -> impl Iterator<Item = (&[T], bool)> {
    let count = rows.len().div_ceil(MAX_ROWS_PER_CHUNK).max(1);
    (0..count).map(move |piece| {
        let start = piece * MAX_ROWS_PER_CHUNK;
        (&rows[start..rows.len().min(start + MAX_ROWS_PER_CHUNK)], piece + 1 == count)
    })
}
