//! Writes a profile for the Firefox Profiler (`profiler.firefox.com`). Each device is a process. The main thread of this
//! process has all allocations and frees with their bytes and stacks, and its counters show the device's memory. The
//! profiler shows a process's allocations on one thread and its memory as tracks, so several devices in one process
//! could not be distinguished. The program is a separate process with threads that show the running scopes.
//!
//! **Why fxprof-processed-profile?** The profiler's format changes with its version, and its authors' crate follows
//! these changes. (Version 0.8, MIT or Apache-2.0; it needs `debugid`, `uuid`, `bitflags` and `rustc-hash`.)

mod markers;
#[cfg(test)]
mod reader;
#[cfg(test)]
mod tests;

use crate::options::ExportOptions;
use crate::stacks::{ExportedStack, Stacks};
use crate::timeline::ranges::build_tracks;
use crate::timeline::scopes::{Lane, ScopeEvent, for_each_scope_event, kind_name, lane_name};
use crate::timeline::{DeviceTimeline, MonotonicClock, Times, collect_remarks, group_marks, program_name};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CounterHandle, Frame, FrameFlags, FrameInfo, GraphColor, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
    WeightType,
};
use markers::{IntervalMarker, MomentMarker};
use memtrack_frames::ownership::short;
use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// The size of the output buffer in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// If a counter does not change for longer than this, in nanoseconds, its value is repeated just before the next
/// change, because the profiler connects values with straight lines, and the line must be horizontal until the change.
const MAX_GAP_NS: u64 = 1_000_000;

/// The first of the unique addresses for blocks that are older than the trace. The profiler uses the address to find
/// the allocation for a free, and other blocks may also have used the real addresses of the older blocks. The unique
/// addresses lie above all memory, and JavaScript's numbers represent them exactly.
const FIRST_OLDER_ADDRESS: u64 = 1 << 52;

/// Writes the requested devices of the snapshot.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let devices = options.device_ids();
    let times = Times::of(snapshot);
    let mut writer = Writer::new(snapshot, &times);
    let mut stacks = Stacks::new(snapshot, &options.rules);
    for &device in &devices {
        if let Some(timeline) = DeviceTimeline::of(snapshot, device) {
            writer.write_device(&timeline, &mut stacks, symbols);
        }
    }
    writer.write_scopes(&devices);
    writer.write_ranges(&devices);
    writer.write_marks();
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    serde_json::to_writer(&mut out, &writer.profile)?;
    out.flush()
}

struct Writer<'a> {
    snapshot: &'a Snapshot,
    times: &'a Times<'a>,
    profile: Profile,
    /// The program's process, which is created when there is data for it.
    program: Option<ProcessHandle>,
    /// The program's threads, keyed by name.
    threads: HashMap<String, ThreadHandle>,
    /// The category for all frames.
    allocations: CategoryHandle,
    scopes: CategoryHandle,
    memory: CategoryHandle,
}

impl<'a> Writer<'a> {
    fn new(snapshot: &'a Snapshot, times: &'a Times<'a>) -> Self {
        // The format has no other field for remarks about the whole profile.
        let product = format!("{} — {}", program_name(snapshot), collect_remarks(snapshot, times).join("; "));
        let start_ns = if times.known { times.start_ns } else { 0 };
        let start = ReferenceTimestamp::from_millis_since_unix_epoch(start_ns as f64 / 1e6);
        let mut profile = Profile::new(&product, start, SamplingInterval::from_millis(1));
        // All names are resolved, so the profiler need not symbolicate.
        profile.set_symbolicated(true);
        let allocations = profile.add_category("Allocation", CategoryColor::Blue);
        let scopes = profile.add_category("Running", CategoryColor::Green);
        let memory = profile.add_category("Memory", CategoryColor::Red);
        let threads = HashMap::new();
        Self { snapshot, times, profile, program: None, threads, allocations, scopes, memory }
    }

    /// Writes a device's allocations, counters, and out-of-memory events.
    fn write_device(
        &mut self,
        timeline: &DeviceTimeline<'_>,
        stacks: &mut Stacks<'_>,
        symbols: &mut Symbolizer,
    ) {
        let process =
            self.profile.add_process(&timeline.format_heading(), self.snapshot.meta.pid, to_timestamp(0));
        let thread = self.profile.add_thread(process, self.snapshot.meta.pid, to_timestamp(0), true);
        self.profile.set_thread_samples_weight_type(thread, WeightType::Bytes);
        self.profile.add_initial_visible_thread(thread);
        let exported = timeline.origins.iter().map(|&origin| stacks.look_up(origin, symbols));
        let handles: Vec<Option<StackHandle>> =
            exported.map(|stack| self.intern_stack(thread, &stack)).collect();
        self.write_allocations(timeline, &handles, thread);
        let (before, live) = timeline.live_bytes();
        let requested = self.add_counter(process, "requested", timeline.live_description(), GraphColor::Blue);
        self.write_counts(requested, before, live);
        if let Some((before, reserved)) = timeline.reserved_bytes() {
            let about = "Bytes in segments that the allocator held";
            let counter = self.add_counter(process, "reserved", about, GraphColor::Grey);
            self.write_counts(counter, before, reserved);
        }
        self.write_free_bytes(timeline, process);
        for row in timeline.oom_rows() {
            let name = self.profile.intern_string("out of memory");
            let requested = self.snapshot.events.size_bytes[row];
            let free = self.snapshot.oom_free_bytes(row);
            let detail = match free {
                Some(free) => format!("{requested} bytes requested, {free} bytes free"),
                None => format!("{requested} bytes requested"),
            };
            let detail = self.profile.intern_string(&detail);
            let timing = MarkerTiming::Instant(to_timestamp(self.times.ns(self.snapshot.events.ticks[row])));
            self.profile.add_marker(
                thread,
                timing,
                MomentMarker { name, text: detail, category: self.memory },
            );
        }
    }

    /// Writes the allocation and the free of every block. Blocks that were live before the first event are written as
    /// allocations at the start. A sampled block has the number of bytes that it represents. Blocks of zero bytes are omitted.
    fn write_allocations(
        &mut self,
        timeline: &DeviceTimeline<'_>,
        stacks: &[Option<StackHandle>],
        thread: ThreadHandle,
    ) {
        let snapshot = self.snapshot;
        let add = |profile: &mut Profile, ns, index: usize, sign: i64| {
            let lifetime = &timeline.lifetimes[index];
            let stack = stacks[timeline.origin_of[index] as usize];
            let address = match lifetime.from {
                Some(row) => snapshot.events.address[row],
                None => FIRST_OLDER_ADDRESS + index as u64,
            };
            let bytes = i64::try_from(lifetime.bytes).unwrap_or(i64::MAX);
            // Only the sign of the bytes distinguishes an allocation from a free.
            if bytes == 0 {
                return;
            }
            profile.add_allocation_sample(thread, to_timestamp(ns), stack, address, sign * bytes);
        };
        let lifetimes = &timeline.lifetimes;
        // Lifetimes are in allocation order, except for those of blocks that are older than the trace.
        let mut started = (0..lifetimes.len()).filter(|&at| lifetimes[at].from.is_some()).peekable();
        let mut ended: Vec<u32> =
            (0..lifetimes.len() as u32).filter(|&at| lifetimes[at as usize].to.is_some()).collect();
        ended.sort_by_key(|&at| lifetimes[at as usize].to);
        let mut ended = ended.into_iter().map(|at| at as usize).peekable();
        for (index, _) in lifetimes.iter().enumerate().filter(|(_, lifetime)| lifetime.from.is_none()) {
            add(&mut self.profile, 0, index, 1);
        }
        let mut clock = MonotonicClock::default();
        for row in timeline.rows() {
            let ns = clock.advance_to(self.times.ns(snapshot.events.ticks[row]));
            // Frees come first, because memory that is allocated again must have been freed before.
            while let Some(index) = ended.next_if(|&index| lifetimes[index].to <= Some(row)) {
                add(&mut self.profile, ns, index, -1);
            }
            while let Some(index) = started.next_if(|&index| lifetimes[index].from <= Some(row)) {
                add(&mut self.profile, ns, index, 1);
            }
        }
    }

    /// Returns the handle of a stack. Frames are labels that include the line, because the format has no other field
    /// for it.
    fn intern_stack(&mut self, thread: ThreadHandle, stack: &ExportedStack) -> Option<StackHandle> {
        let names: Vec<String> = match stack {
            ExportedStack::Stack(keys) => keys.iter().flat_map(|key| key.frames.iter().map(short)).collect(),
            ExportedStack::Unknown(texts) => texts.clone(),
        };
        let category_pair = self.allocations.into();
        let mut frames = Vec::with_capacity(names.len());
        for name in names.iter().rev() {
            let frame = Frame::Label(self.profile.intern_string(name));
            frames.push(FrameInfo { frame, category_pair, flags: FrameFlags::empty() });
        }
        self.profile.intern_stack_frames(thread, frames.into_iter())
    }

    fn add_counter(
        &mut self,
        process: ProcessHandle,
        name: &str,
        about: &str,
        color: GraphColor,
    ) -> CounterHandle {
        // The profiler draws counters in this category as memory.
        let counter = self.profile.add_counter(process, name, "Memory", about);
        self.profile.set_counter_color(counter, color);
        counter
    }

    /// Writes a counter's values before the first event, and after each row that changed it.
    fn write_counts(&mut self, counter: CounterHandle, before: u64, after: Vec<(usize, u64)>) {
        let mut clock = MonotonicClock::default();
        let mut last = (0, before);
        self.profile.add_counter_sample(counter, to_timestamp(0), before as f64, 0);
        for (row, bytes) in after {
            let ns = clock.advance_to(self.times.ns(self.snapshot.events.ticks[row]));
            if ns - last.0 > MAX_GAP_NS {
                self.profile.add_counter_sample(counter, to_timestamp(ns - 1), 0.0, 0);
            }
            self.profile.add_counter_sample(counter, to_timestamp(ns), difference(last.1, bytes), 1);
            last = (ns, bytes);
        }
        let end_ns = self.times.end_ns();
        if end_ns > last.0 {
            self.profile.add_counter_sample(counter, to_timestamp(end_ns), 0.0, 0);
        }
    }

    /// Writes the device's free bytes at each time at which they were queried.
    fn write_free_bytes(&mut self, timeline: &DeviceTimeline<'_>, process: ProcessHandle) {
        let free = timeline.free_bytes();
        if free.is_empty() {
            return;
        }
        let about = "Free bytes of the device, at the moments at which the driver was queried; unknown in \
                     between";
        let counter = self.add_counter(process, "free", about, GraphColor::Green);
        let mut last = 0;
        for (ticks, bytes) in free {
            let ns = self.times.ns(ticks);
            self.profile.add_counter_sample(counter, to_timestamp(ns), difference(last, bytes), 0);
            last = bytes;
        }
    }

    /// Returns the program's thread with this name, creating it if necessary.
    fn get_or_add_thread(&mut self, name: &str, os_id: u64) -> ThreadHandle {
        if let Some(&known) = self.threads.get(name) {
            return known;
        }
        let pid = self.snapshot.meta.pid;
        let process = match self.program {
            Some(process) => process,
            None => {
                let process = self.profile.add_process(program_name(self.snapshot), pid, to_timestamp(0));
                self.program = Some(process);
                process
            }
        };
        let tid = u32::try_from(os_id).unwrap_or(u32::MAX);
        let thread = self.profile.add_thread(process, tid, to_timestamp(0), false);
        self.profile.set_thread_name(thread, name);
        self.profile.set_thread_show_markers_in_timeline(thread, true);
        self.profile.add_initial_visible_thread(thread);
        self.threads.insert(name.to_owned(), thread);
        thread
    }

    /// Writes the running scopes.
    fn write_scopes(&mut self, devices: &[DeviceId]) {
        let (snapshot, times) = (self.snapshot, self.times);
        let mut threads: HashMap<Lane, ThreadHandle> = HashMap::new();
        let done: Result<(), std::convert::Infallible> =
            for_each_scope_event(snapshot, times, devices, |event| {
                let ScopeEvent::End { lane, scope, from_ns, ns } = event else { return Ok(()) };
                let thread = *threads.entry(lane).or_insert_with(|| {
                    let os_id = match lane {
                        Lane::Thread(thread) => {
                            snapshot.threads.get(thread.index()).map_or(0, |known| known.os_id)
                        }
                        Lane::Trace(_) => 0,
                    };
                    self.get_or_add_thread(&lane_name(snapshot, lane), os_id)
                });
                let scope = &snapshot.scopes.rows[scope.index()];
                self.write_interval(thread, (from_ns, ns), &scope.name, kind_name(scope.kind));
                Ok(())
            });
        let Ok(()) = done;
    }

    /// Writes the ranges of PyTorch's profiler.
    fn write_ranges(&mut self, devices: &[DeviceId]) {
        for track in build_tracks(self.snapshot, self.times, devices) {
            let thread = self.get_or_add_thread(&track.name(self.snapshot), 0);
            for range in track.ranges {
                let name = self.snapshot.strings.get(range.name);
                self.write_interval(thread, (range.from_ns, range.to_ns), &name, "profiler");
            }
        }
    }

    fn write_interval(&mut self, thread: ThreadHandle, (from_ns, to_ns): (u64, u64), name: &str, kind: &str) {
        let (name, kind) = (self.profile.intern_string(name), self.profile.intern_string(kind));
        let timing = MarkerTiming::Interval(to_timestamp(from_ns), to_timestamp(to_ns));
        self.profile.add_marker(thread, timing, IntervalMarker { name, text: kind, category: self.scopes });
    }

    /// Writes the program's marks, and the interval from each mark to the next one with the same name, such as a step
    /// or a request.
    fn write_marks(&mut self) {
        for series in group_marks(self.snapshot, self.times) {
            let lane = lane_name(self.snapshot, Lane::Thread(series.thread));
            let os_id = self.snapshot.threads.get(series.thread.index()).map_or(0, |known| known.os_id);
            let thread = self.get_or_add_thread(&lane, os_id);
            let name = self.profile.intern_string(series.name);
            let detail = self.profile.intern_string("marked by the program");
            for &ns in &series.ns {
                let moment = MomentMarker { name, text: detail, category: self.scopes };
                self.profile.add_marker(thread, MarkerTiming::Instant(to_timestamp(ns)), moment);
            }
            for pair in series.ns.windows(2) {
                self.write_interval(thread, (pair[0], pair[1]), series.name, "step");
            }
        }
    }
}

/// Converts nanoseconds to a timestamp of the profile.
fn to_timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

/// Returns the difference between two numbers, which is exact up to 2^53, like all numbers in JavaScript.
fn difference(from: u64, to: u64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64
}
