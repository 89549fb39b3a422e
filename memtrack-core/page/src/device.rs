//! Builds the tables for a snapshot's devices.

use crate::bands::Bands;
use crate::blocks::{BlockLifetime, BlockLifetimes, NONE, find_lifetimes};
use crate::columns::{Columns, Section};
use crate::first::{build_sentences, order_by_importance};
use crate::head::{DeviceHead, FORMAT, Head, Kind, Sections, Sentence, settings_to_json};
use crate::held::FinalRows;
use crate::inferred::DeviceCategories;
use crate::pieces::{Piece, find_pieces};
use crate::texts::Texts;
use crate::trace::{Trace, time_us};
use crate::{Page, View};
use memtrack_blocks::held::pool_name;
use memtrack_blocks::reserved::has_reserved_bytes;
use memtrack_model::event::{Action, DeviceId, DeviceKind, ScopeId};
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use memtrack_model::snapshot::{InferredCategories, ReadingMoment, Snapshot, StringId, Value, sample_label};
use memtrack_model::units::{counted, human_bytes};
use memtrack_report::process_memory::ProcessMemory;
use memtrack_report::summary::{DeviceSummary, summary};
use memtrack_symbols::Symbolizer;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The maximum number of categories that are distinguished. A page has only one byte for a block's category.
const MAX_CATEGORIES: usize = 250;
/// The maximum number of streams, and of pools, that are distinguished.
const MAX_STREAMS_AND_POOLS: usize = 60_000;

/// Creates the page for a whole snapshot.
pub(crate) fn build_page(
    snapshot: &Snapshot,
    name: &str,
    inferred: Option<&InferredCategories>,
    threads: usize,
) -> Page {
    let mut symbols = Symbolizer::of(snapshot);
    let summaries = summary(snapshot, &mut symbols);
    let mut texts = Texts::of(snapshot, &mut symbols);
    let has_time = !snapshot.events.is_empty() && snapshot.has_times();
    let start_us = if has_time { find_start_us(snapshot) } else { 0 };
    // The section of texts comes first, but it is complete only after all the others.
    let mut unpacked = vec![Columns::default()];
    let mut devices = Vec::new();
    let mut ids = snapshot.device_ids();
    let mut traces = Trace::of_all(snapshot);
    // Compute the ordinals only once, because those of host memory require a pass over all events.
    let ordinals = snapshot.ordinals();
    // Devices with events come first, accelerators before host memory, and of the heap and mapped memory the larger one.
    let place = |id| match snapshot.device_kind(id) {
        DeviceKind::Device => (0, 0),
        DeviceKind::Host | DeviceKind::Mapped => {
            let summary = summaries.iter().find(|summary| summary.device == ordinals.of(id));
            (1, summary.map_or(0, |summary| summary.peak.highest.requested_bytes))
        }
        DeviceKind::Pinned => (2, 0),
    };
    ids.sort_by_key(|id| {
        let (kind, bytes) = place(*id);
        (!traces.contains_key(id), kind, Reverse(bytes), ordinals.of(*id))
    });
    let process = ProcessMemory::of(snapshot).and_then(|process| process.to_line());
    for id in ids {
        let trace = traces.remove(&id).unwrap_or_else(|| Trace::empty(snapshot));
        let summary = summaries.iter().find(|summary| summary.device == ordinals.of(id));
        let device = DeviceTables {
            snapshot,
            trace,
            inferred,
            id,
            ordinal: ordinals.of(id),
            process: process.as_deref(),
            start_us,
            has_time,
        };
        if let Some(head) = device.build(summary, &mut texts, &mut unpacked) {
            devices.push(head);
        }
    }
    unpacked[0] = texts.into_columns();
    let head = Head {
        format: FORMAT,
        memtrack: env!("CARGO_PKG_VERSION"),
        name: name.to_owned(),
        view: View::default().name(),
        kept: false,
        start_us,
        since: snapshot.seconds_since().name(),
        has_time,
        settings: settings_to_json(snapshot),
        first: Vec::new(),
        devices,
    };
    Page { head, sections: pack_sections(unpacked, threads) }
}

/// Returns the time from which the page counts: the start of the recording, or the first event if that is earlier.
fn find_start_us(snapshot: &Snapshot) -> u64 {
    let start = time_us(snapshot, snapshot.clock.first.0);
    let first = || snapshot.events.ticks.iter().min().map_or(start, |&ticks| time_us(snapshot, ticks));
    if snapshot.pytorch.is_some() { start } else { start.min(first()) }
}

/// Compresses the sections in parallel, on this number of threads.
fn pack_sections(unpacked: Vec<Columns>, threads: usize) -> Vec<Section> {
    let queue = std::sync::Mutex::new(unpacked.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let work = || std::iter::from_fn(next).map(|(at, columns)| (at, columns.pack())).collect::<Vec<_>>();
    let mut packed: Vec<(usize, Section)> = std::thread::scope(|scope| {
        let helpers: Vec<_> =
            (1..threads).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mut all = work();
        for helper in helpers {
            all.extend(helper.join().unwrap_or_default());
        }
        all
    });
    packed.sort_by_key(|(at, _)| *at);
    packed.into_iter().map(|(_, section)| section).collect()
}

/// Names that a device's columns refer to by index.
#[derive(Default)]
struct NameTable<K> {
    names: Vec<String>,
    known: HashMap<K, u32>,
}

impl<K: std::hash::Hash + Eq> NameTable<K> {
    /// Returns the index of a name. Once there are `most` names, every new name is "others".
    fn index_of(&mut self, key: K, most: usize, name: impl FnOnce() -> String) -> u32 {
        let names = &mut self.names;
        if names.len() >= most && !self.known.contains_key(&key) {
            if names.len() == most {
                names.push("others".to_owned());
            }
            return most as u32;
        }
        *self.known.entry(key).or_insert_with(|| {
            names.push(name());
            names.len() as u32 - 1
        })
    }
}

/// All names that a device's columns refer to.
#[derive(Default)]
struct DeviceNames {
    streams: NameTable<u64>,
    pools: NameTable<(u64, u64)>,
    categories: NameTable<String>,
}

impl DeviceNames {
    /// Returns 1 plus the index of a category, or 0 if `name` is empty.
    fn add_category(&mut self, name: &str) -> u32 {
        match self.categories.known.get(name) {
            _ if name.is_empty() => 0,
            Some(&known) => 1 + known,
            None => 1 + self.categories.index_of(name.to_owned(), MAX_CATEGORIES, || name.to_owned()),
        }
    }
}

/// The source of the notes on a block. Blocks with the same source have the same notes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum NoteSource {
    /// The texts of a PyTorch file.
    File { metadata: StringId, context: StringId, category: StringId },
    /// A recorded scope and, for a sampled block, its size in bytes and the bits of the number of blocks that it
    /// represents.
    Recording { scope: ScopeId, sample: Option<(u64, u64)> },
}

struct DeviceTables<'a> {
    snapshot: &'a Snapshot,
    trace: Trace<'a>,
    inferred: Option<&'a InferredCategories>,
    id: DeviceId,
    ordinal: u16,
    /// The line about the host memory of the process as a whole, if it is known.
    process: Option<&'a str>,
    start_us: u64,
    has_time: bool,
}

impl<'a> DeviceTables<'a> {
    /// Adds the device's sections and returns its head, or `None` if the device has no data.
    fn build(
        &self,
        summary: Option<&DeviceSummary>,
        texts: &mut Texts<'_>,
        unpacked: &mut Vec<Columns>,
    ) -> Option<DeviceHead> {
        let has_segments = self.snapshot.device_kind(self.id).has_segments();
        let BlockLifetimes { lifetimes, of_event } = find_lifetimes(&self.trace, self.id);
        // In PyTorch's format, other memory has segments too, but they only repeat its blocks.
        let pieces = match has_segments {
            true => find_pieces(&self.trace, self.id),
            false => Vec::new(),
        };
        if self.trace.is_empty() && lifetimes.is_empty() && pieces.is_empty() {
            return None;
        }
        let mut names = DeviceNames::default();
        let final_rows = FinalRows::of(self.snapshot, self.id);
        let next = unpacked.len();
        let (blocks, inferred) = self.build_blocks(&lifetimes, &final_rows, &mut names, texts);
        unpacked.push(blocks);
        unpacked.push(self.build_events(&lifetimes, &of_event, &pieces, texts));
        unpacked.push(self.build_pieces(&pieces, &final_rows, &mut names, texts));
        let mut bands = Bands::of(&self.trace, texts);
        if let Some(pytorch) = self.pytorch() {
            bands.annotate(&self.trace, pytorch, self.id, texts);
        }
        let markers = std::mem::take(&mut bands.markers);
        unpacked.push(bands.into_columns());
        let ooms = self.trace.events().filter(|(.., action)| *action == Action::Oom);
        let mut first =
            summary.map_or_else(Vec::new, |summary| build_sentences(summary, &self.trace, self.id));
        let at_peak = inferred.as_ref().and_then(|found| found.peak_sentence(&lifetimes, self.trace.len()));
        let is_colored = !names.categories.names.is_empty() && (inferred.is_none() || at_peak.is_some());
        first.extend(at_peak);
        let is_part = matches!(self.snapshot.device_kind(self.id), DeviceKind::Host | DeviceKind::Mapped);
        first.extend(self.process.filter(|_| is_part).map(|line| Sentence {
            title: "Process".to_owned(),
            text: line.to_owned(),
            show: None,
        }));
        let mut first = order_by_importance(first);
        first.splice(0..0, self.format_contradiction(&of_event));
        let capacity = self.snapshot.driver.iter().filter(|reading| reading.device == self.id);
        let capacity = capacity.max_by_key(|reading| reading.moment == ReadingMoment::Last);
        Some(DeviceHead {
            name: self.snapshot.device_name(self.id),
            ordinal: self.ordinal,
            kind: match self.snapshot.device_kind(self.id) {
                DeviceKind::Host => Kind::Heap,
                DeviceKind::Mapped => Kind::Mapped,
                DeviceKind::Pinned => Kind::Pinned,
                DeviceKind::Device => Kind::Device,
            },
            estimated: lifetimes.iter().any(|life| life.flags & crate::blocks::ESTIMATE != 0)
                || summary.is_some_and(|summary| summary.held.estimated),
            events: self.trace.len(),
            blocks: lifetimes.len(),
            segments: pieces.len(),
            reserved: !pieces.is_empty() && has_reserved_bytes(self.snapshot, self.id),
            streams: names.streams.names,
            pools: names.pools.names,
            categories: names.categories.names,
            inferred: inferred.is_some(),
            color: if is_colored { "category" } else { "stack" },
            capacity_bytes: capacity.map(|reading| reading.total_bytes).filter(|&bytes| bytes > 0),
            first,
            ooms: ooms.map(|(event, ..)| event as usize).collect(),
            markers,
            sections: Sections {
                texts: 0,
                blocks: next,
                events: next + 1,
                segments: next + 2,
                bands: next + 3,
            },
        })
    }

    /// Returns the sentence about blocks that were allocated in the trace but are neither freed in it nor live at its
    /// end, or `None` if there are none.
    fn format_contradiction(&self, of_event: &[u32]) -> Option<Sentence> {
        let (mut blocks, mut bytes) = (0, 0u64);
        for (event, row, action) in self.trace.events() {
            if of_event[event as usize] == NONE && action == Action::Alloc {
                blocks += 1;
                bytes = bytes.saturating_add(self.snapshot.weighed_event(row).bytes);
            }
        }
        let text = || {
            let (blocks, bytes) = (counted(blocks, "block"), human_bytes(bytes));
            format!("{blocks} ({bytes}) allocated in the trace, neither freed in it nor held by a segment")
        };
        (blocks > 0).then(|| Sentence { title: "Not shown".to_owned(), text: text(), show: None })
    }

    /// Returns the content that only a PyTorch file has; `None` for a recording.
    fn pytorch(&self) -> Option<&'a PyTorch> {
        self.snapshot.pytorch.as_deref()
    }

    /// Returns the section of blocks and, if the file has no categories, the inferred categories.
    fn build_blocks(
        &self,
        lifetimes: &[BlockLifetime],
        final_rows: &FinalRows,
        names: &mut DeviceNames,
        texts: &mut Texts<'_>,
    ) -> (Columns, Option<DeviceCategories>) {
        let mut pools = Vec::with_capacity(lifetimes.len());
        let mut categories = Vec::with_capacity(lifetimes.len());
        let (mut notes, mut finals) = (Vec::new(), Vec::new());
        let mut known_notes = HashMap::new();
        for (place, life) in lifetimes.iter().enumerate() {
            let block = life
                .final_row
                .and_then(|row| final_rows.blocks.get(&self.snapshot.blocks[row as usize].address));
            let event = life.start.or(life.end).map(|event| self.trace.row(event));
            let pool = final_rows.pool(self.snapshot, event, life.address);
            pools.push(
                pool.map_or(0, |pool| {
                    1 + names.pools.index_of(pool, MAX_STREAMS_AND_POOLS, || pool_name(pool))
                }),
            );
            let source = self.note_source(life, event, block.and_then(|(row, _)| *row));
            categories.push(names.add_category(&self.category(event, &source)));
            let note = *known_notes.entry(source).or_insert_with(|| self.add_note(&source, texts));
            if note != 0 {
                notes.push((place as u64, note));
            }
            if let Some(forward) = event.and_then(|row| self.forward_stack(row)) {
                notes.push((place as u64, texts.intern(&forward)));
            }
            if let Some(&(_, bytes)) = block.filter(|(_, bytes)| *bytes != life.bytes) {
                finals.push((place as u64, bytes));
            }
        }
        let mut inferred = self
            .inferred
            .filter(|_| names.categories.names.is_empty())
            .map(|found| DeviceCategories::of(found, &self.trace, lifetimes))
            .filter(|found| !found.names.is_empty());
        if let Some(found) = &mut inferred {
            names.categories.names.clone_from(&found.names);
            categories.clone_from(&found.by_lifetime);
        }
        let mut columns = Columns::default();
        columns.add_deltas("start", lifetimes.iter().map(|life| encode_start(life.start)));
        columns.add_varints("life", lifetimes.iter().map(|life| encode_life(life.start, life.end)));
        columns.add_varints(
            "pending",
            lifetimes.iter().map(|life| {
                life.pending_from().map_or(0, |from| (1 + from - life.start.map_or(-1, i64::from)) as u64)
            }),
        );
        columns.add_varints("size", lifetimes.iter().map(|life| life.bytes));
        let stacks: Vec<u32> = lifetimes.iter().map(|life| texts.add_stack(life.stack)).collect();
        columns.add_varints("stack", stacks);
        columns.add_deltas("address", lifetimes.iter().map(|life| life.address));
        let streams = lifetimes.iter().map(|life| {
            names.streams.index_of(life.stream, MAX_STREAMS_AND_POOLS, || life.stream.to_string())
        });
        columns.add_varints("stream", streams);
        columns.add_varints("pool", pools);
        if !names.categories.names.is_empty() {
            columns.add_varints("category", categories);
        }
        columns.add_varints("flags", lifetimes.iter().map(|life| life.flags));
        columns.add_deltas("note_block", notes.iter().map(|note| note.0));
        columns.add_varints("note_text", notes.iter().map(|note| note.1));
        columns.add_deltas("final_block", finals.iter().map(|last| last.0));
        columns.add_varints("final_bytes", finals.iter().map(|last| last.1));
        (columns, inferred)
    }

    /// Returns where the notes on a block come from. `event` is the row of one of its events, and `block` its row in a
    /// PyTorch file.
    fn note_source(&self, life: &BlockLifetime, event: Option<usize>, block: Option<usize>) -> NoteSource {
        let Some(pytorch) = self.pytorch() else {
            let (scope, weighed) = match (event, life.final_row) {
                (Some(row), _) => (self.snapshot.events.scope[row], Some(self.snapshot.weighed_event(row))),
                (None, Some(row)) => {
                    let row = row as usize;
                    (self.snapshot.blocks[row].scope, Some(self.snapshot.weighed_block(row)))
                }
                (None, None) => (ScopeId::NONE, None),
            };
            let sample = weighed.filter(|weighed| weighed.estimated);
            let sample = sample.map(|weighed| (weighed.size_bytes, weighed.blocks.to_bits()));
            return NoteSource::Recording { scope, sample };
        };
        let text = |key: Key| match (event, block) {
            (Some(row), _) if pytorch.events.has(row, key) => pytorch.events.text(row, key),
            (_, Some(row)) => pytorch.blocks.text(row, key),
            _ => StringId::EMPTY,
        };
        NoteSource::File {
            metadata: text(Key::UserMetadata),
            context: text(Key::CompileContext),
            category: text(Key::Category),
        }
    }

    /// Returns the category that the file contains for a block, or an empty text. `event` is the row of one of its
    /// events.
    fn category(&self, event: Option<usize>, source: &NoteSource) -> Cow<'a, str> {
        match source {
            NoteSource::File { category, .. } => self.snapshot.strings.get(*category),
            NoteSource::Recording { .. } => {
                let categories = self.snapshot.categories.get();
                event.and_then(|row| categories?.of_event(row)).unwrap_or_default().into()
            }
        }
    }

    /// Returns the number of the text that contains the user's and the compiler's notes on a block, or 0 if there are
    /// no notes.
    fn add_note(&self, source: &NoteSource, texts: &mut Texts<'_>) -> u32 {
        let (metadata, context) = match *source {
            NoteSource::File { metadata, context, .. } => {
                (self.snapshot.strings.get(metadata), self.snapshot.strings.get(context))
            }
            NoteSource::Recording { scope, sample } => {
                let path = self.snapshot.scopes.place(scope).full_name();
                let metadata = match sample {
                    Some((size_bytes, blocks)) => sample_label(&path, size_bytes, f64::from_bits(blocks)),
                    None => path,
                };
                (metadata.into(), "".into())
            }
        };
        let mut lines = Vec::new();
        if !metadata.is_empty() {
            lines.push(format!("User metadata: {metadata}"));
        }
        // Outside of compiled code, PyTorch writes `N/A`.
        if !context.is_empty() && context != "N/A" {
            lines.push(format!("Compile context: {context}"));
        }
        texts.intern(&lines.join("\n"))
    }

    /// Returns the forward-pass stack of an allocation in the backward pass.
    fn forward_stack(&self, row: usize) -> Option<String> {
        if !self.pytorch()?.events.has(row, Key::ForwardFrames) {
            return None;
        }
        let value = self.snapshot.event_value(row, Key::ForwardFrames)?;
        let (Value::List(lines) | Value::Tuple(lines)) = value else { return None };
        let line = |value: &Value| match value {
            Value::Str(id) => Some(self.snapshot.strings.get(*id).trim_end().to_owned()),
            _ => None,
        };
        let lines: Vec<String> = lines.iter().filter_map(line).collect();
        (!lines.is_empty()).then(|| format!("Forward pass, where this was created:\n{}", lines.join("\n")))
    }

    fn build_pieces(
        &self,
        pieces: &[Piece],
        final_rows: &FinalRows,
        names: &mut DeviceNames,
        texts: &mut Texts<'_>,
    ) -> Columns {
        let mut columns = Columns::default();
        columns.add_deltas("start", pieces.iter().map(|piece| encode_start(piece.start)));
        columns.add_varints("life", pieces.iter().map(|piece| encode_life(piece.start, piece.end)));
        columns.add_varints("size", pieces.iter().map(|piece| piece.bytes));
        let stacks: Vec<u32> = pieces.iter().map(|piece| texts.add_stack(piece.stack)).collect();
        columns.add_varints("stack", stacks);
        columns.add_deltas("address", pieces.iter().map(|piece| piece.address));
        let streams = pieces.iter().map(|piece| {
            names.streams.index_of(piece.stream, MAX_STREAMS_AND_POOLS, || piece.stream.to_string())
        });
        columns.add_varints("stream", streams);
        let pools: Vec<u32> = pieces
            .iter()
            .map(|piece| {
                let event = piece.start.or(piece.end).map(|event| self.trace.row(event));
                let pool = final_rows.pool(self.snapshot, event, piece.address);
                pool.map_or(0, |pool| {
                    1 + names.pools.index_of(pool, MAX_STREAMS_AND_POOLS, || pool_name(pool))
                })
            })
            .collect();
        columns.add_varints("pool", pools);
        columns.add_varints("flags", pieces.iter().map(|piece| piece.flags));
        columns
    }

    fn build_events(
        &self,
        lifetimes: &[BlockLifetime],
        of_event: &[u32],
        pieces: &[Piece],
        texts: &mut Texts<'_>,
    ) -> Columns {
        let events = &self.snapshot.events;
        let sizes_by_event = self.sizes_by_event(lifetimes, pieces);
        let mut odd = Vec::new();
        let mut stacks = Vec::with_capacity(self.trace.len());
        for (event, row, action) in self.trace.events() {
            let event = event as usize;
            let block_has_stack = action == Action::Alloc && of_event[event] != NONE;
            stacks.push(if block_has_stack { 0 } else { texts.add_stack(events.stack[row]) });
            let (address, bytes) = match action {
                // An unknown number of free bytes is written as the largest possible number.
                Action::Oom => {
                    (self.snapshot.oom_free_bytes(row).unwrap_or(u64::MAX), events.size_bytes[row])
                }
                _ => (events.address[row], self.snapshot.weighed_event(row).bytes),
            };
            let text = match action {
                Action::Annotate => self
                    .pytorch()
                    .map_or(0, |pytorch| texts.add_string(pytorch.events.text(row, Key::UserMetadata))),
                Action::Other => self.add_other_action(row, texts),
                _ => 0,
            };
            if sizes_by_event[event] != Some((address, bytes)) || text != 0 {
                odd.push((event as u64, address, bytes, text));
            }
        }
        let mut columns = Columns::default();
        let rows = || self.trace.rows();
        columns.add_bytes("action", self.trace.events().map(|(.., action)| action as u8));
        if self.has_time {
            columns.add_deltas("time", rows().map(|row| self.trace.time_us(row).wrapping_sub(self.start_us)));
        }
        columns.add_varints("stack", stacks);
        columns.add_varints("scope", rows().map(|row| events.scope[row].0));
        columns.add_varints("thread", rows().map(|row| events.thread[row].0));
        let threads: Vec<&str> = self.snapshot.threads.iter().map(|thread| &*thread.name).collect();
        columns.add_texts("threads", if threads.is_empty() { &[""] } else { &threads[..] });
        columns.add_deltas("odd_event", odd.iter().map(|odd| odd.0));
        columns.add_deltas("odd_address", odd.iter().map(|odd| odd.1));
        columns.add_varints("odd_size", odd.iter().map(|odd| odd.2));
        columns.add_varints("odd_text", odd.iter().map(|odd| odd.3));
        columns
    }

    /// Returns the number of the text for an action that memtrack does not know.
    fn add_other_action(&self, row: usize, texts: &mut Texts<'_>) -> u32 {
        match self.snapshot.event_value(row, Key::Action) {
            Some(Value::Str(id)) => texts.add_string(id),
            Some(value) => texts.intern(value.type_name()),
            None if self.pytorch().is_none() => texts.intern(Action::Other.name()),
            None => 0,
        }
    }

    /// Returns, for each event, the address and size of the block or piece that starts, becomes pending or ends at the
    /// event, or `None` unless exactly one block or piece does.
    fn sizes_by_event(&self, lifetimes: &[BlockLifetime], pieces: &[Piece]) -> Vec<Option<(u64, u64)>> {
        let mut sizes_by_event: Vec<(u8, (u64, u64))> = vec![(0, (0, 0)); self.trace.len()];
        let mut add = |event: Option<u32>, what: (u64, u64)| {
            if let Some(event) = event {
                let (count, size) = &mut sizes_by_event[event as usize];
                *count = count.saturating_add(1);
                *size = what;
            }
        };
        for life in lifetimes {
            let what = (life.address, life.bytes);
            add(life.start, what);
            add(life.end, what);
            add(life.request.filter(|_| life.ends_pending), what);
        }
        for piece in pieces {
            let what = (piece.address, piece.bytes);
            add(piece.start, what);
            add(piece.end, what);
        }
        sizes_by_event.into_iter().map(|(count, what)| (count == 1).then_some(what)).collect()
    }
}

/// Encodes the event at which a block or piece starts, or -1 if it is older than the trace.
fn encode_start(event: Option<u32>) -> u64 {
    event.map_or(u64::MAX, u64::from)
}

/// Encodes the number of events from the start to the end of a block or piece, or 0 if it is live at the end. The start
/// of one that is older than the trace counts as -1.
fn encode_life(start: Option<u32>, end: Option<u32>) -> u64 {
    end.map_or(0, |end| (i64::from(end) - start.map_or(-1, i64::from)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_limit_are_merged_as_others() {
        let mut places = NameTable::default();
        let of = |places: &mut NameTable<u64>, key: u64| places.index_of(key, 2, || format!("name {key}"));
        let found: Vec<u32> = [7, 8, 7, 9, 8, 10].map(|key| of(&mut places, key)).to_vec();
        assert_eq!(found, [0, 1, 0, 2, 1, 2]);
        assert_eq!(places.names, ["name 7", "name 8", "others"]);
    }
}
