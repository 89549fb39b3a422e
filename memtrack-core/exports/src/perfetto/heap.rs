//! Writes a device's allocations as a heap profile. Its dumps contain the allocations and frees of each stack before
//! the first event, at the peak and at the end. Each heap has its own packet sequence, because Perfetto assigns all
//! numbers in a sequence to one heap.

use super::messages::*;
use super::trace::Trace;
use crate::stacks::{ExportedStack, Stacks, file_of, line_of};
use crate::timeline::{DeviceTimeline, MonotonicClock, Times};
use memtrack_blocks::origin::Origin;
use memtrack_frames::ownership::short;
use memtrack_model::snapshot::Module;
use memtrack_model::{Frame as NamedFrame, Snapshot};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::io;

/// The maximum number of stacks in one packet. Packets should be small, because readers buffer a whole packet.
const MAX_STACKS_PER_PACKET: usize = 512;

/// Writes the heap dumps of a device.
pub(super) fn write(
    trace: &mut Trace<'_>,
    snapshot: &Snapshot,
    (stacks, symbols): (&mut Stacks<'_>, &mut Symbolizer),
    times: &Times<'_>,
    timeline: &DeviceTimeline<'_>,
    pid: u32,
) -> io::Result<()> {
    if timeline.lifetimes.is_empty() {
        return Ok(());
    }
    let mut interned = InternedStacks::new(trace, snapshot);
    for part in timeline.origins.chunks(MAX_STACKS_PER_PACKET) {
        let exported = part.iter().map(|&origin: &Origin| stacks.look_up(origin, symbols));
        interned.write(trace, exported)?;
    }
    let mut index = 0;
    let mut clock = MonotonicClock::default();
    for after in dump_rows(timeline) {
        let ns = match after {
            None => 0,
            Some(row) => snapshot.events.ticks.get(row).map_or_else(|| times.end_ns(), |&at| times.ns(at)),
        };
        let ns = clock.advance_to(ns);
        let sums = sums_after(timeline, after);
        let parts = sums.chunks(MAX_STACKS_PER_PACKET);
        let last = parts.len() - 1;
        for (place, part) in parts.enumerate() {
            let first = place * MAX_STACKS_PER_PACKET;
            let samples =
                part.iter().enumerate().map(|(at, sums)| sums.to_heap_sample(callstack_id(first + at)));
            let heap = ProcessHeapSamples {
                pid: Some(pid.into()),
                samples: samples.collect(),
                timestamp: Some(ns),
                heap_name: Some(timeline.format_heading()),
                sampling_interval_bytes: Some(sampling_interval(snapshot, timeline)),
            };
            let dump = ProfilePacket {
                process_dumps: vec![heap],
                continued: Some(place < last),
                index: Some(index),
            };
            index += 1;
            trace.write_packet(&TracePacket {
                timestamp: Some(ns),
                trusted_packet_sequence_id: Some(interned.sequence),
                sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
                data: Some(Data::ProfilePacket(dump)),
                ..TracePacket::default()
            })?;
        }
    }
    Ok(())
}

/// Returns the rows after which to write dumps: the row of the peak, and `usize::MAX` for the end. They are preceded by
/// `None` for the time before the first event if blocks were live then or the peak has no row.
fn dump_rows(timeline: &DeviceTimeline<'_>) -> Vec<Option<usize>> {
    let has_older = timeline.lifetimes.iter().any(|lifetime| lifetime.from.is_none());
    let mut moments = Vec::new();
    if has_older || timeline.peak.row.is_none() {
        moments.push(None);
    }
    moments.extend(timeline.peak.row.map(Some));
    moments.push(Some(usize::MAX));
    moments
}

/// Returns the mean number of bytes between samples, or 1 if all blocks were recorded.
fn sampling_interval(snapshot: &Snapshot, timeline: &DeviceTimeline<'_>) -> u64 {
    if !timeline.estimated {
        return 1;
    }
    let widest = snapshot.sampling.map_or(0, |sampling| sampling.widest_interval_bytes);
    widest.max(snapshot.meta.sample_mean_bytes).max(1)
}

/// The allocations and frees of a stack.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocated_bytes: u64,
    freed_bytes: u64,
    allocated: f64,
    freed: f64,
}

impl Sums {
    fn to_heap_sample(self, callstack: u64) -> HeapSample {
        HeapSample {
            callstack_id: Some(callstack),
            self_allocated: Some(self.allocated_bytes),
            self_freed: Some(self.freed_bytes),
            alloc_count: Some(self.allocated.round() as u64),
            free_count: Some(self.freed.round() as u64),
        }
    }
}

/// Returns the totals for all origins after `row`, or before the first event if `row` is `None`. Every dump has all
/// origins, so that dumps can be compared.
fn sums_after(timeline: &DeviceTimeline<'_>, row: Option<usize>) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); timeline.origins.len()];
    for (lifetime, &origin) in timeline.lifetimes.iter().zip(&timeline.origin_of) {
        let sums = &mut sums[origin as usize];
        // Since `None < Some(0)`, blocks that were live from the start come before every row.
        if lifetime.from <= row {
            sums.allocated_bytes = sums.allocated_bytes.saturating_add(lifetime.bytes);
            sums.allocated += lifetime.blocks;
        }
        if lifetime.to.is_some_and(|to| Some(to) <= row) {
            sums.freed_bytes = sums.freed_bytes.saturating_add(lifetime.bytes);
            sums.freed += lifetime.blocks;
        }
    }
    sums
}

/// Returns the ID of an origin's stack. It is never 0, because that means no stack.
fn callstack_id(origin: usize) -> u64 {
    origin as u64 + 1
}

/// The values that identify a frame in Perfetto.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FrameKey {
    name: u64,
    mapping: u64,
    rel_pc: u64,
    source: Option<u64>,
    line: Option<u32>,
}

/// The strings, frames and stacks that a sequence has interned.
struct InternedStacks<'a> {
    snapshot: &'a Snapshot,
    sequence: u32,
    /// The loaded binaries, sorted by start address.
    modules: Vec<&'a Module>,
    names: HashMap<String, u64>,
    sources: HashMap<String, u64>,
    paths: HashMap<String, u64>,
    mappings: HashMap<(String, u64), u64>,
    frames: HashMap<FrameKey, u64>,
    callstacks: usize,
}

impl<'a> InternedStacks<'a> {
    fn new(trace: &mut Trace<'_>, snapshot: &'a Snapshot) -> Self {
        let mut modules: Vec<&Module> = snapshot.modules.iter().collect();
        modules.sort_by_key(|module| module.start);
        Self {
            snapshot,
            sequence: trace.start_sequence(),
            modules,
            names: HashMap::new(),
            sources: HashMap::new(),
            paths: HashMap::new(),
            mappings: HashMap::new(),
            frames: HashMap::new(),
            callstacks: 0,
        }
    }

    /// Writes the next stacks, along with any new frames and strings.
    fn write(
        &mut self,
        trace: &mut Trace<'_>,
        stacks: impl Iterator<Item = ExportedStack>,
    ) -> io::Result<()> {
        let flags = if self.callstacks == 0 { INCREMENTAL_STATE_CLEARED } else { NEEDS_INCREMENTAL_STATE };
        let mut fresh = InternedData::default();
        for stack in stacks {
            let mut frames: Vec<u64> = Vec::new();
            match stack {
                ExportedStack::Stack(keys) => {
                    for key in &keys {
                        frames.extend(
                            key.frames
                                .iter()
                                .map(|frame| self.intern_frame(Some(key.key), frame, &mut fresh)),
                        );
                    }
                }
                ExportedStack::Unknown(texts) => {
                    for function in texts {
                        let frame = NamedFrame { function, ..NamedFrame::default() };
                        frames.push(self.intern_frame(None, &frame, &mut fresh));
                    }
                }
            }
            frames.reverse();
            fresh.callstacks.push(Callstack { iid: Some(callstack_id(self.callstacks)), frame_ids: frames });
            self.callstacks += 1;
        }
        trace.write_packet(&TracePacket {
            timestamp: Some(0),
            trusted_packet_sequence_id: Some(self.sequence),
            sequence_flags: Some(flags),
            interned_data: Some(fresh),
            data: None,
        })
    }

    /// Returns the ID of a frame. `key` is the return address in a recording, or `None` for a text that takes the place
    /// of a stack.
    fn intern_frame(&mut self, key: Option<u64>, frame: &NamedFrame, fresh: &mut InternedData) -> u64 {
        let address = key.filter(|_| self.snapshot.pytorch.is_none());
        let module = address.and_then(|address| Some((address, self.find_module(address)?)));
        let (mapping, rel_pc) = match module {
            Some((address, module)) => {
                let path = module.path.clone();
                let mapping = self.intern_mapping((path, module.start), Some(module), fresh);
                (mapping, address.saturating_sub(1).wrapping_sub(module.bias))
            }
            // A script's file takes the place of the binary.
            None => {
                let path = file_of(frame).unwrap_or_default().to_owned();
                (self.intern_mapping((path, 0), None, fresh), 0)
            }
        };
        // The name includes the line, because Perfetto identifies frames by address and name, but scripts have no
        // addresses.
        let name = if key.is_some() { short(frame) } else { frame.function.clone() };
        let frame_key = FrameKey {
            name: intern_string(&mut self.names, &name, &mut fresh.function_names),
            mapping,
            rel_pc,
            source: file_of(frame)
                .map(|file| intern_string(&mut self.sources, file, &mut fresh.source_paths)),
            line: line_of(frame).filter(|_| file_of(frame).is_some()),
        };
        let next = self.frames.len() as u64 + 1;
        *self.frames.entry(frame_key).or_insert_with_key(|key| {
            fresh.frames.push(Frame {
                iid: Some(next),
                function_name_id: Some(key.name),
                mapping_id: Some(key.mapping),
                rel_pc: Some(key.rel_pc),
                source_path_iid: key.source,
                line_number: key.line,
            });
            next
        })
    }

    /// Returns the binary that contains an address.
    fn find_module(&self, address: u64) -> Option<&'a Module> {
        let call = address.saturating_sub(1);
        let after = self.modules.partition_point(|module| module.start <= call);
        self.modules[..after].iter().rev().find(|module| call < module.end).copied()
    }

    fn intern_mapping(
        &mut self,
        key: (String, u64),
        module: Option<&Module>,
        fresh: &mut InternedData,
    ) -> u64 {
        if let Some(&known) = self.mappings.get(&key) {
            return known;
        }
        let path = intern_string(&mut self.paths, &key.0, &mut fresh.mapping_paths);
        let iid = self.mappings.len() as u64 + 1;
        let build_id = module.and_then(|module| decode_hex(&module.build_id));
        if let Some(bytes) = &build_id {
            // Each mapping has its own build ID entry, whose ID is the same as the mapping's.
            fresh.build_ids.push(InternedString { iid: Some(iid), str: Some(bytes.clone()) });
        }
        fresh.mappings.push(Mapping {
            iid: Some(iid),
            build_id: build_id.map(|_| iid),
            start: module.map(|module| module.start),
            end: module.map(|module| module.end),
            path_string_ids: vec![path],
        });
        self.mappings.insert(key, iid);
        iid
    }
}

/// Returns the ID of a string.
fn intern_string(known: &mut HashMap<String, u64>, text: &str, fresh: &mut Vec<InternedString>) -> u64 {
    if let Some(&iid) = known.get(text) {
        return iid;
    }
    let iid = known.len() as u64 + 1;
    known.insert(text.to_owned(), iid);
    fresh.push(InternedString { iid: Some(iid), str: Some(text.as_bytes().to_vec()) });
    iid
}

/// Decodes hexadecimal digits. Returns `None` if the text is empty or contains other characters.
fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
