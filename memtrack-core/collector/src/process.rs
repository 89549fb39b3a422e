//! One recorded process: the tables to which its events refer, and its recording.

use crate::Settings;
use crate::recording::Recording;
use crate::system::SystemProcess;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, Event, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::{
    CountedPeak, DeviceStatistics, DriverReading, Folded, Marks, Module, ReadingMoment, Sampling, Scope,
    ScopeSum, ScopeSums, Thread,
};
use memtrack_recorder::recorder::{Sums, device_of, meta_of_process, statistics_of, ticks};
use memtrack_recorder::shared_memory::log::ReadRecord;
use memtrack_recorder::shared_memory::{Counter, EventPage, LogState, ProcessView, Region};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A recorded process, as far as it was drained.
#[derive(Debug)]
pub(crate) struct Process {
    system: SystemProcess,
    pid: u32,
    is_program: bool,
    settings: Settings,
    clock: (u64, u64),
    /// The numbers of events that were read of pages that are still in use.
    read: BTreeMap<(usize, usize), usize>,
    log: LogState,
    program: String,
    rows: Rows,
    /// The binaries so far: their addresses and paths.
    modules: HashSet<(u64, String)>,
    driver: BTreeMap<(DeviceId, ReadingMoment), DriverReading>,
    /// Whether a reading is not written yet.
    has_new_reading: bool,
    sums_written: Instant,
    recording: Option<Recording>,
    /// The number of events that were read, by device.
    events: BTreeMap<DeviceId, u64>,
    resident_bytes: u64,
    resident_read: Option<Instant>,
    /// The binary because of which calls of the driver bypass the hook.
    bypass: Option<String>,
    messages: Vec<String>,
    /// Failed requests whose events may not be written yet, …
    new_failed: Vec<FailedRequest>,
    /// … and others.
    failed: Vec<FailedRequest>,
    has_failed: bool,
}

/// The shortest time between two readings of the resident memory.
const RESIDENT_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two writes of the sums.
const SUMS_INTERVAL: Duration = Duration::from_secs(5);

/// New rows of the tables, which are written before the events that refer to them.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) stacks: Vec<(StackId, Vec<u64>)>,
    pub(crate) threads: Vec<(ThreadId, Thread)>,
    pub(crate) modules: Vec<Module>,
    pub(crate) scopes: Vec<(ScopeId, Scope)>,
    pub(crate) marks: Marks,
}

impl Rows {
    fn are_empty(&self) -> bool {
        self.stacks.is_empty()
            && self.threads.is_empty()
            && self.modules.is_empty()
            && self.scopes.is_empty()
            && self.marks.rows.is_empty()
    }
}

/// The recording of a process.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The process id.
    pub pid: u32,
    /// Whether it is the process that the command started.
    pub is_program: bool,
    /// The file; `None` if nothing was recorded.
    pub path: Option<PathBuf>,
    /// Whether the process has ended.
    pub has_ended: bool,
    /// When it began: ticks of the recorder's clock.
    pub begun: u64,
}

/// A request for memory that failed in a recorded process.
#[derive(Clone, Debug)]
pub struct FailedRequest {
    /// The recording so far; `None` if nothing was recorded.
    pub recording: Option<PathBuf>,
    /// The request.
    pub oom: OutOfMemory,
    /// The time after the request: ticks of the recorder's clock.
    pub ticks: u64,
    /// Text about the scope in which memory ran out, to be appended to a message.
    pub scope: String,
}

impl Process {
    pub(crate) fn new(view: &ProcessView, settings: &Settings) -> Self {
        let is_started = view.pid == settings.command || view.parent == settings.command;
        Self {
            system: SystemProcess::open(view.pid),
            pid: view.pid,
            is_program: is_started && !view.is_forked,
            settings: settings.clone(),
            clock: view.clock,
            read: BTreeMap::new(),
            log: LogState::default(),
            program: String::new(),
            rows: Rows::default(),
            modules: HashSet::new(),
            driver: BTreeMap::new(),
            has_new_reading: false,
            sums_written: Instant::now(),
            recording: None,
            events: BTreeMap::new(),
            resident_bytes: 0,
            resident_read: None,
            bypass: None,
            messages: Vec::new(),
            new_failed: Vec::new(),
            failed: Vec::new(),
            has_failed: false,
        }
    }

    /// Returns whether this is the process in this view.
    pub(crate) fn is_of(&self, view: &ProcessView) -> bool {
        (self.pid, self.clock) == (view.pid, view.clock)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.system.has_ended()
    }

    /// Reads how much of the process is in memory, if that `is_due` or was not read for a while: a reading takes some
    /// microseconds.
    pub(crate) fn read_resident(&mut self, is_due: bool) {
        let now = Instant::now();
        if !is_due && self.resident_read.is_some_and(|read| now.duration_since(read) < RESIDENT_INTERVAL) {
            return;
        }
        self.resident_read = Some(now);
        if let Some(bytes) = self.system.resident_bytes() {
            self.resident_bytes = bytes;
        }
    }

    /// Writes what the process has written since the last call. Returns whether there were events.
    pub(crate) fn drain(&mut self, region: &Region, view: &ProcessView) -> bool {
        // Their events were written before the records, so that this call or an earlier one reads them.
        let failed = std::mem::take(&mut self.new_failed);
        let any = self.write_new(region, view);
        self.failed.extend(failed);
        any
    }

    fn write_new(&mut self, region: &Region, view: &ProcessView) -> bool {
        let mut pages = Vec::new();
        region.take_events(view, &mut self.read, &mut pages);
        // Afterwards, so that no event refers to a record that is missing.
        for record in region.take_records(view, &mut self.log) {
            self.add(record);
        }
        let is_waiting = self.recording.is_none() || self.rows.are_empty() && !self.has_new_reading;
        if self.has_failed {
            // Rows that cannot be written are not kept either.
            self.rows = Rows::default();
        }
        if pages.is_empty() && is_waiting || self.has_failed {
            return !pages.is_empty();
        }
        // Pages of a thread in their order.
        pages.sort_by_key(|page| page.events.first().map_or(0, |event| event.ticks));
        let mut events: Vec<Event> = pages.into_iter().flat_map(|EventPage { events }| events).collect();
        for event in &events {
            *self.events.entry(event.device).or_default() += 1;
        }
        let any = !events.is_empty();
        self.write(&mut events, view);
        if self.sums_written.elapsed() >= SUMS_INTERVAL {
            self.sums_written = Instant::now();
            self.write_sums(region, view);
        }
        any
    }

    fn add(&mut self, record: ReadRecord) {
        match record {
            ReadRecord::Stack(id, addresses) => self.rows.stacks.push((id, addresses)),
            ReadRecord::Thread(id, thread) => self.rows.threads.push((id, thread)),
            ReadRecord::Module(module) => {
                // The program is the first binary.
                if self.program.is_empty() {
                    self.program.clone_from(&module.path);
                }
                // Reported when it is listed, and when a stack first goes through it.
                if self.modules.insert((module.start, module.path.clone())) {
                    self.rows.modules.push(module);
                }
            }
            ReadRecord::Driver(reading) => {
                self.driver.insert((reading.device, reading.moment), reading);
                self.has_new_reading = true;
            }
            ReadRecord::Message(text) => self.messages.push(text),
            ReadRecord::Scope(id, scope) => self.rows.scopes.push((id, scope)),
            ReadRecord::Mark(ticks, thread, name) => self.rows.marks.push(ticks, thread, &name),
            ReadRecord::Bypass(owner) => self.bypass = Some(owner),
            ReadRecord::OutOfMemory(oom, ticks, scope) => {
                self.new_failed.push(FailedRequest { recording: None, oom, ticks, scope });
            }
        }
    }

    fn write(&mut self, events: &mut [Event], view: &ProcessView) {
        let rows = std::mem::take(&mut self.rows);
        let written = match &mut self.recording {
            Some(recording) => recording.append(rows, events),
            None => self.create(view).and_then(|mut recording| {
                let written = recording.append(rows, events);
                self.recording = Some(recording);
                written
            }),
        };
        let written = written.and_then(|()| match &mut self.recording {
            Some(recording) if std::mem::take(&mut self.has_new_reading) => {
                recording.append_driver(&self.driver.values().copied().collect::<Vec<_>>())
            }
            _ => Ok(()),
        });
        self.note_failure(written);
    }

    /// Writes the sums so far, for readers of a recording whose end is never written.
    fn write_sums(&mut self, region: &Region, view: &ProcessView) {
        let end = self.end(region, view);
        if let Some(recording) = &mut self.recording {
            let written = recording.append_sums(&end);
            self.note_failure(written);
        }
    }

    fn note_failure(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.has_failed = true;
            let process = self.pid;
            self.messages.push(format!("the recording of process {process} ends here: {error}"));
        }
    }

    fn create(&self, view: &ProcessView) -> std::io::Result<Recording> {
        let meta = meta_of_process(&self.settings.options, &self.program, self.pid);
        Recording::create(
            &self.settings.output,
            self.is_program,
            self.pid,
            &meta,
            self.clock,
            self.settings.options.max_bytes,
            view.start_ticks,
        )
    }

    /// Returns the binary because of which calls of the driver bypass the hook, if the process has loaded the driver; once.
    pub(crate) fn take_bypass(&mut self, region: &Region, view: &ProcessView) -> Option<String> {
        if region.is_bypassed(view) { self.bypass.take() } else { None }
    }

    /// Ends the recording: everything was drained, and the process writes no more. Returns it, and a message if that failed.
    pub(crate) fn finish(mut self, region: &Region, view: &ProcessView) -> (Recorded, Option<String>) {
        let mut recorded = self.recorded();
        recorded.has_ended = true;
        if let Some(recording) = self.recording.take().filter(|_| !self.has_failed) {
            let end = self.end(region, view);
            let rows = std::mem::take(&mut self.rows);
            if let Err(error) = recording.finish(rows, &end) {
                let process = self.pid;
                return (
                    recorded,
                    Some(format!("the recording of process {process} cannot be ended: {error}")),
                );
            }
        }
        (recorded, None)
    }

    /// Returns what is known at the end, besides the events.
    fn end(&self, region: &Region, view: &ProcessView) -> End {
        let (sums, scopes) = region.sums(view);
        let counter = |counter| region.counter(view, counter);
        let seconds = |of| counter(of) as f64 / 1e9;
        let options = &self.settings.options;
        let host = &sums[0];
        let sampling = options.samples_host_heap().then(|| Sampling {
            cpu_seconds: seconds(Counter::CpuNs),
            exact_seconds: seconds(Counter::ExactNs),
            spent_seconds: seconds(Counter::SpentNs),
            widest_interval_bytes: counter(Counter::WidestIntervalBytes),
            ..host.unrecorded()
        });
        let peak = region.peak(view);
        let counted_peak = peak.is_on.then_some(CountedPeak {
            ticks: peak.ticks,
            bytes: peak.bytes,
            most_bytes: peak.most_bytes,
            since_ticks: peak.since_ticks,
            until_ticks: peak.until_ticks,
            events_before: None,
        });
        let folded = Folded {
            stacks: counter(Counter::OmittedStacks),
            threads: counter(Counter::UnnamedThreads),
            blocks: counter(Counter::UntrackedBlocks),
            driver_allocations: counter(Counter::OmittedDriverAllocations),
            driver_bytes: counter(Counter::OmittedDriverBytes),
        };
        let is_whole = counter(Counter::ThreadsWithoutSums) == 0;
        let devices = if is_whole { self.devices(&sums) } else { Vec::new() };
        let row = |((slot, scope), [allocated_bytes, allocations]): ((usize, ScopeId), [u64; 2])| ScopeSum {
            device: device_of(slot),
            scope,
            allocated_bytes,
            allocations,
        };
        let mut rows: Vec<ScopeSum> = scopes.into_iter().map(row).collect();
        rows.sort_unstable();
        let folded_scopes = counter(Counter::FoldedScopes);
        let scope_sums = is_whole.then_some(ScopeSums { ticks: ticks(), folded: folded_scopes, rows });
        let driver = self.driver.values().copied().collect();
        End { driver, sampling, counted_peak, folded, scope_sums, devices }
    }

    fn devices(&self, sums: &[Sums]) -> Vec<DeviceStatistics> {
        let of_slot = |(slot, sums)| {
            let read = self.events.get(&device_of(slot)).copied().unwrap_or(0);
            statistics_of(slot, sums, read, self.resident_bytes)
        };
        sums.iter().enumerate().filter_map(of_slot).collect()
    }

    /// Returns the recording so far.
    pub(crate) fn recorded(&self) -> Recorded {
        Recorded {
            pid: self.pid,
            is_program: self.is_program,
            path: self.recording.as_ref().map(|recording| recording.path().to_owned()),
            has_ended: false,
            begun: self.clock.0,
        }
    }

    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    pub(crate) fn take_failed_requests(&mut self) -> Vec<FailedRequest> {
        let mut failed = std::mem::take(&mut self.failed);
        let recording = self.recorded().path;
        failed.iter_mut().for_each(|failed| failed.recording.clone_from(&recording));
        failed
    }
}

/// What a recording contains at its end, besides the events.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) driver: Vec<DriverReading>,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) counted_peak: Option<CountedPeak>,
    pub(crate) folded: Folded,
    pub(crate) scope_sums: Option<ScopeSums>,
    /// Empty if they are not known.
    pub(crate) devices: Vec<DeviceStatistics>,
}
