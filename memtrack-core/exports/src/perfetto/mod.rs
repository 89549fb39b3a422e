//! Writes a Perfetto trace (`ui.perfetto.dev`) with counters for each device, running scopes as slices, out-of-memory
//! events and the program's marks as instants, and each device's allocations as a heap profile. All data is written, so
//! counters are not thinned out.

mod heap;
mod messages;
#[cfg(test)]
mod tests;
mod trace;

use crate::options::ExportOptions;
use crate::stacks::Stacks;
use crate::timeline::ranges::{Range, build_tracks};
use crate::timeline::scopes::{Lane, ScopeEvent, for_each_scope_event, kind_name, lane_name};
use crate::timeline::{DeviceTimeline, MonotonicClock, Times, collect_remarks, group_marks, program_name};
use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;
use memtrack_symbols::Symbolizer;
use messages::*;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use trace::{Events, Trace};

/// The size of the output buffer in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes the requested devices of the snapshot.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let devices = options.device_ids();
    let times = Times::of(snapshot);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut writer = Writer::begin(snapshot, &times, Trace::new(&mut out))?;
    let mut stacks = Stacks::new(snapshot, &options.rules);
    for &device in &devices {
        if let Some(timeline) = DeviceTimeline::of(snapshot, device) {
            writer.write_device(&timeline)?;
            let stacks_and_symbols = (&mut stacks, &mut *symbols);
            heap::write(&mut writer.trace, snapshot, stacks_and_symbols, &times, &timeline, writer.pid)?;
        }
    }
    writer.write_scopes(&devices)?;
    writer.write_ranges(&devices)?;
    writer.write_marks()?;
    out.flush()
}

struct Writer<'a> {
    snapshot: &'a Snapshot,
    times: &'a Times<'a>,
    trace: Trace<'a>,
    /// The packet sequence for track descriptions.
    descriptions: u32,
    process: u64,
    pid: u32,
    /// The number of tracks that the process has so far.
    track_count: i32,
}

impl<'a> Writer<'a> {
    /// Starts a trace by writing the clocks and the process.
    fn begin(snapshot: &'a Snapshot, times: &'a Times<'a>, mut trace: Trace<'a>) -> io::Result<Self> {
        let descriptions = trace.start_sequence();
        let clock = |clock_id, timestamp| Clock { clock_id: Some(clock_id), timestamp: Some(timestamp) };
        let mut clocks = vec![clock(BOOTTIME, 0), clock(MONOTONIC_COARSE, 0)];
        if times.known {
            clocks.push(clock(REALTIME, times.start_ns));
        }
        trace.write_packet(&TracePacket {
            timestamp: Some(0),
            trusted_packet_sequence_id: Some(descriptions),
            data: Some(Data::ClockSnapshot(ClockSnapshot { clocks })),
            ..TracePacket::default()
        })?;
        // A process must have an ID, and 0 is the idle process.
        let pid = snapshot.meta.pid.clamp(1, i32::MAX as u32);
        let process = ProcessDescriptor {
            pid: Some(pid as i32),
            process_name: Some(program_name(snapshot).to_owned()),
            process_labels: collect_remarks(snapshot, times),
        };
        let process = TrackDescriptor {
            process: Some(process),
            child_ordering: Some(ORDER_EXPLICIT),
            ..TrackDescriptor::default()
        };
        let process = trace.write_track(descriptions, process)?;
        Ok(Self { snapshot, times, trace, descriptions, process, pid, track_count: 0 })
    }

    /// Writes a track for the process, below the existing ones.
    fn write_track(&mut self, name: String, counter: bool, about: Option<&str>) -> io::Result<u64> {
        self.track_count += 1;
        let track = TrackDescriptor {
            name: Some(name),
            parent_uuid: Some(self.process),
            counter: counter.then_some(CounterDescriptor { unit: Some(UNIT_SIZE_BYTES) }),
            sibling_order_rank: Some(self.track_count),
            description: about.map(str::to_owned),
            ..TrackDescriptor::default()
        };
        self.trace.write_track(self.descriptions, track)
    }

    /// Writes a device's counters and its out-of-memory events.
    fn write_device(&mut self, timeline: &DeviceTimeline<'_>) -> io::Result<()> {
        let heading = timeline.format_heading();
        let (before, live) = timeline.live_bytes();
        self.write_counter(format!("{heading}: requested"), timeline.live_description(), before, live)?;
        if let Some((before, reserved)) = timeline.reserved_bytes() {
            let about = "Bytes in segments that the allocator held";
            self.write_counter(format!("{}: reserved", timeline.name), about, before, reserved)?;
        }
        let free = timeline.free_bytes();
        if !free.is_empty() {
            let about = "Free bytes of the device, at the moments at which the driver was queried; unknown \
                         in between";
            let track = self.write_track(format!("{}: free", timeline.name), true, Some(about))?;
            let mut events = Events::new(&mut self.trace);
            for (ticks, bytes) in free {
                let ns = self.times.ns(ticks);
                events.write_event(&mut self.trace, ns, counter_event(track, bytes))?;
            }
        }
        self.write_oom_events(timeline)
    }

    /// Writes a counter, with its values before the first event and after each row that changed it.
    fn write_counter(
        &mut self,
        name: String,
        about: &str,
        before: u64,
        after: Vec<(usize, u64)>,
    ) -> io::Result<()> {
        let track = self.write_track(name, true, Some(about))?;
        let mut events = Events::new(&mut self.trace);
        events.write_event(&mut self.trace, 0, counter_event(track, before))?;
        let mut clock = MonotonicClock::default();
        for (row, bytes) in after {
            let ns = clock.advance_to(self.times.ns(self.snapshot.events.ticks[row]));
            events.write_event(&mut self.trace, ns, counter_event(track, bytes))?;
        }
        Ok(())
    }

    fn write_oom_events(&mut self, timeline: &DeviceTimeline<'_>) -> io::Result<()> {
        let mut rows = timeline.oom_rows().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let track = self.write_track(format!("{}: out of memory", timeline.name), false, None)?;
        let mut events = Events::new(&mut self.trace);
        for row in rows {
            let detail =
                |name: &str, bytes| DebugAnnotation { name: Some(name.to_owned()), uint_value: Some(bytes) };
            let mut debug_annotations = vec![detail("requested_bytes", self.snapshot.events.size_bytes[row])];
            if let Some(free) = self.snapshot.oom_free_bytes(row) {
                debug_annotations.push(detail("free_bytes", free));
            }
            let event = TrackEvent {
                track_uuid: Some(track),
                r#type: Some(INSTANT),
                debug_annotations,
                ..TrackEvent::default()
            };
            let ns = self.times.ns(self.snapshot.events.ticks[row]);
            events.write_named_event(&mut self.trace, ns, ("out of memory", "memory"), event)?;
        }
        Ok(())
    }

    /// Writes the running scopes, with one track for each thread.
    fn write_scopes(&mut self, devices: &[DeviceId]) -> io::Result<()> {
        let (snapshot, times) = (self.snapshot, self.times);
        let mut events = Events::new(&mut self.trace);
        let mut known = HashMap::new();
        for_each_scope_event(snapshot, times, devices, |event| {
            let lane = match event {
                ScopeEvent::Begin { lane, .. } | ScopeEvent::End { lane, .. } => lane,
            };
            let track = match known.get(&lane) {
                Some(&track) => track,
                None => {
                    let about = "Scopes, from the first to the last event that was made in them";
                    let track = self.write_track(lane_name(snapshot, lane), false, Some(about))?;
                    known.insert(lane, track);
                    track
                }
            };
            match event {
                ScopeEvent::Begin { scope, ns, .. } => {
                    let scope = &snapshot.scopes.rows[scope.index()];
                    let name_and_kind = (scope.name.as_str(), kind_name(scope.kind));
                    events.write_named_event(&mut self.trace, ns, name_and_kind, slice_begin(track))
                }
                ScopeEvent::End { ns, .. } => events.write_end(&mut self.trace, track, ns),
            }
        })
    }

    /// Writes the ranges of PyTorch's profiler.
    fn write_ranges(&mut self, devices: &[DeviceId]) -> io::Result<()> {
        let mut events = Events::new(&mut self.trace);
        for ranges in build_tracks(self.snapshot, self.times, devices) {
            let name = ranges.name(self.snapshot);
            let track = self.write_track(name, false, Some("Ranges of PyTorch's profiler"))?;
            let mut open: Vec<u64> = Vec::new();
            for Range { name, from_ns, to_ns } in ranges.ranges {
                while let Some(end) = open.pop_if(|end| *end <= from_ns) {
                    events.write_end(&mut self.trace, track, end)?;
                }
                let name = self.snapshot.strings.get(name);
                events.write_named_event(
                    &mut self.trace,
                    from_ns,
                    (&name, "profiler"),
                    slice_begin(track),
                )?;
                open.push(to_ns);
            }
            while let Some(end) = open.pop() {
                events.write_end(&mut self.trace, track, end)?;
            }
        }
        Ok(())
    }

    /// Writes the program's marks, and a slice from each mark to the next one with the same name, such as a step or a
    /// request.
    fn write_marks(&mut self) -> io::Result<()> {
        for series in group_marks(self.snapshot, self.times) {
            let name = match series.thread.is_none() {
                true => series.name.to_owned(),
                false => {
                    format!("{}: {}", lane_name(self.snapshot, Lane::Thread(series.thread)), series.name)
                }
            };
            let track = self.write_track(
                name,
                false,
                Some("Moments that the program marked, and the time between them"),
            )?;
            let mut events = Events::new(&mut self.trace);
            for (index, &ns) in series.ns.iter().enumerate() {
                if index > 0 {
                    events.write_end(&mut self.trace, track, ns)?;
                }
                let instant =
                    TrackEvent { track_uuid: Some(track), r#type: Some(INSTANT), ..TrackEvent::default() };
                events.write_named_event(&mut self.trace, ns, (series.name, "mark"), instant)?;
                if index + 1 < series.ns.len() {
                    events.write_named_event(
                        &mut self.trace,
                        ns,
                        (series.name, "step"),
                        slice_begin(track),
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn slice_begin(track: u64) -> TrackEvent {
    TrackEvent { track_uuid: Some(track), r#type: Some(SLICE_BEGIN), ..TrackEvent::default() }
}

fn counter_event(track: u64, bytes: u64) -> TrackEvent {
    TrackEvent {
        track_uuid: Some(track),
        r#type: Some(COUNTER),
        counter_value: Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
        ..TrackEvent::default()
    }
}
