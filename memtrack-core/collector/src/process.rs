//! One recorded process: the tables that its events refer to, and its part of the run's file.

use crate::Settings;
use crate::jit::Jit;
use crate::on_demand::OnDemand;
use crate::python::{Python, add_name};
use crate::recording::RunFile;
use crate::resident::ResidentReadings;
use crate::system::SystemProcess;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, ThreadId};
use memtrack_model::run_protocol::MARK_FUNCTION;
use memtrack_model::snapshot::{
    AddressSpace, DeviceStatistics, DriverReading, Folded, KnownNames, Marks, Module, ProcessEnd, ProcessRow,
    ReadingMoment, Sampling, Scope, ScopeSum, ScopeSums, Snapshot, Thread,
};
use memtrack_recorder::recorder::{Sums, device_of, meta_of_process, statistics_of, ticks};
use memtrack_recorder::shared_memory::log::Record;
use memtrack_recorder::shared_memory::{Counter, EventPage, LogState, ProcessView, Region};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

/// A recorded process, with the data drained from it so far.
#[derive(Debug)]
pub(crate) struct Process {
    system: SystemProcess,
    pid: u32,
    row: ProcessRow,
    settings: Settings,
    clock: (u64, u64),
    /// The number of events read so far from each page that is still in use.
    read: BTreeMap<(usize, usize), usize>,
    log: LogState,
    program: String,
    rows: Rows,
    /// The binaries that the process has reported so far, by start address and path: the end and the load address.
    modules: HashMap<(u64, String), [u64; 2]>,
    driver: BTreeMap<(DeviceId, ReadingMoment), DriverReading>,
    /// Whether `driver` contains a reading that has not been written to the file yet.
    has_new_reading: bool,
    sums_written: Instant,
    /// The number of the process in the file; `None` as long as it has no events.
    number: Option<u32>,
    /// The number of events that were read, by device.
    events: BTreeMap<DeviceId, u64>,
    /// The bytes in live blocks of the process, on all devices. Blocks that sampling omits are not counted.
    held_bytes: i64,
    /// The later of two times, in ticks: when the process was last seen running, and when it recorded its newest event.
    seen_ticks: u64,
    /// The time at which the end of the process was noticed, in ticks; 0 before then.
    ended_ticks: u64,
    on_demand: OnDemand,
    resident_bytes: u64,
    max_resident_bytes: u64,
    max_anonymous_bytes: u64,
    resident_begun: Option<Instant>,
    resident_read: Option<Instant>,
    resident: ResidentReadings,
    /// The binary whose `dlsym` makes driver calls bypass the hook; `None` if there is none, or after
    /// [`Self::take_bypass`] has returned it.
    bypass: Option<String>,
    python: Python,
    /// Whether stacks of the process contain lines of Python.
    has_lines_of_python: bool,
    jit: Jit,
    /// The reason why Python frames are not recorded, until [`Self::take_python_refusal`] returns it.
    python_refusal: Option<String>,
    /// The functions of `mark_on` that were called, by index, until [`Self::take_called`] returns them.
    called: BTreeSet<usize>,
    messages: Vec<String>,
    /// Failed requests whose events may not have been written yet.
    new_failed: Vec<FailedRequest>,
    /// Failed requests whose events have been written.
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
    /// The names of the lines of Python in new stacks, and of code that the program generated.
    pub(crate) names: KnownNames,
}

impl Rows {
    fn is_empty(&self) -> bool {
        self.stacks.is_empty()
            && self.threads.is_empty()
            && self.modules.is_empty()
            && self.scopes.is_empty()
            && self.marks.rows.is_empty()
            && self.names.is_empty()
    }
}

/// A request for memory that failed in a recorded process.
#[derive(Clone, Debug)]
pub struct FailedRequest {
    /// The number of the process in the file; `None` if nothing was recorded.
    pub process: Option<u32>,
    /// The size and device of the request, and the device's free and total memory.
    pub oom: OutOfMemory,
    /// The time after the request, in ticks of the recorder's clock.
    pub ticks: u64,
    /// Text about the scope in which memory ran out, to be appended to a message.
    pub scope: String,
}

impl Process {
    pub(crate) fn new(view: &ProcessView, settings: &Settings) -> Self {
        let is_started = view.pid == settings.command || view.parent == settings.command;
        let row = ProcessRow {
            pid: view.pid,
            parent: view.parent,
            is_forked: view.is_forked,
            is_first: is_started && !view.is_forked,
            begun_ticks: view.clock.0,
            ..ProcessRow::default()
        };
        Self {
            system: SystemProcess::open(view.pid),
            pid: view.pid,
            row,
            settings: if view.is_beyond_limit { settings.with_smallest_budget() } else { settings.clone() },
            clock: view.clock,
            read: BTreeMap::new(),
            log: LogState::default(),
            program: String::new(),
            rows: Rows::default(),
            modules: HashMap::new(),
            driver: BTreeMap::new(),
            has_new_reading: false,
            sums_written: Instant::now(),
            number: None,
            events: BTreeMap::new(),
            held_bytes: 0,
            seen_ticks: view.clock.0,
            ended_ticks: 0,
            on_demand: OnDemand::default(),
            resident_bytes: 0,
            max_resident_bytes: 0,
            max_anonymous_bytes: 0,
            resident_begun: None,
            resident_read: None,
            resident: ResidentReadings::new(settings.options.max_bytes.is_some()),
            bypass: None,
            python: Python::default(),
            has_lines_of_python: false,
            jit: Jit::new(view.pid, view.clock.1),
            python_refusal: None,
            called: BTreeSet::new(),
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

    /// Returns the process id, if this is the process that the command started.
    pub(crate) fn first_pid(&self) -> Option<u32> {
        self.row.is_first.then_some(self.pid)
    }

    /// Returns the descriptor that becomes readable when the process ends, if there is one.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.system.descriptor()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        let now = ticks();
        let has_ended = self.system.has_ended();
        if !has_ended {
            self.seen_ticks = now;
        }
        if has_ended && self.ended_ticks == 0 {
            self.ended_ticks = now;
        }
        has_ended
    }

    /// Reads the resident memory of the process if a reading `is_due` or the last one is old: older than
    /// [`RESIDENT_INTERVAL`] or, because a new process grows fast, a tenth of the time since the first one. A reading takes some
    /// microseconds.
    pub(crate) fn read_resident(&mut self, is_due: bool) {
        let now = Instant::now();
        let begun = *self.resident_begun.get_or_insert(now);
        let interval = RESIDENT_INTERVAL.min(now.duration_since(begun) / 10);
        if !is_due && self.resident_read.is_some_and(|read| now.duration_since(read) < interval) {
            return;
        }
        self.resident_read = Some(now);
        if let Some(resident) = self.system.resident() {
            self.resident_bytes = resident.bytes;
            self.max_resident_bytes = self.max_resident_bytes.max(resident.max_bytes);
            self.max_anonymous_bytes = self.max_anonymous_bytes.max(resident.anonymous_bytes);
        }
    }

    /// Reads which pages of the process are in memory if that is due, and writes the reading to `file`.
    pub(crate) fn read_pages(&mut self, file: &mut RunFile) {
        let Some(number) = self.number.filter(|_| self.settings.options.host_heap && !self.has_failed) else {
            return;
        };
        if let Some(reading) = self.resident.read(self.pid, self.resident_bytes, &self.settings.libraries) {
            let written = file.append_resident(number, &reading);
            self.note_failure(written);
        }
    }

    /// Reads the data that the process has written since the last call, and writes it to `file`. Returns whether there
    /// were events.
    pub(crate) fn drain(&mut self, region: &Region, view: &ProcessView, file: &mut RunFile) -> bool {
        // The process wrote the events of these requests before it wrote the requests' records. An earlier call has read
        // the records, so the events are read by this call at the latest.
        let failed = std::mem::take(&mut self.new_failed);
        let has_events = self.write_new(region, view, file);
        self.failed.extend(failed);
        has_events
    }

    fn write_new(&mut self, region: &Region, view: &ProcessView, file: &mut RunFile) -> bool {
        let mut pages = Vec::new();
        region.take_events(view, &mut self.read, &mut pages);
        // Records are read after the events, so that no event refers to a missing record.
        for record in region.take_records(view, &mut self.log) {
            self.add(record);
        }
        self.jit.search();
        if self.jit.is_due() {
            self.rows.names.frames.extend(self.jit.read(self.has_lines_of_python).frames);
        }
        let is_waiting = self.number.is_none() || self.rows.is_empty() && !self.has_new_reading;
        if self.has_failed {
            // After a failed write, nothing more is written, so the rows are dropped.
            self.rows = Rows::default();
        }
        let on_demand = if self.has_failed { Vec::new() } else { self.on_demand.read(self.pid, ticks()) };
        if pages.is_empty() && on_demand.is_empty() && is_waiting || self.has_failed {
            return !pages.is_empty();
        }
        // This puts the pages of each thread in order.
        pages.sort_by_key(|page| page.events.first().map_or(0, |event| event.ticks));
        let mut events: Vec<Event> = pages.into_iter().flat_map(|EventPage { events }| events).collect();
        for event in &events {
            *self.events.entry(event.device).or_default() += 1;
        }
        self.on_demand.apply(&mut events);
        events.extend(on_demand);
        events.iter().for_each(|event| self.add_held(event));
        let has_events = !events.is_empty();
        let written = self.write(&mut events, view, file);
        self.note_failure(written);
        if self.sums_written.elapsed() >= SUMS_INTERVAL {
            self.sums_written = Instant::now();
            let written = self.write_sums(region, view, file);
            self.note_failure(written);
        }
        has_events
    }

    fn add_held(&mut self, event: &Event) {
        self.seen_ticks = self.seen_ticks.max(event.ticks);
        let bytes = i64::try_from(event.size_bytes).unwrap_or(i64::MAX);
        match event.action {
            Action::Alloc => self.held_bytes = self.held_bytes.saturating_add(bytes),
            Action::Free | Action::FreeCompleted if !event.flags.contains(EventFlags::UNKNOWN_BLOCK) => {
                self.held_bytes = self.held_bytes.saturating_sub(bytes);
            }
            _ => {}
        }
        self.row.held_bytes = self.row.held_bytes.max(self.held_bytes.max(0) as u64);
    }

    fn add(&mut self, record: Record<'static>) {
        match record {
            Record::Stack(id, addresses) => {
                let addresses = self.python.place(addresses);
                self.jit.add_stack(&addresses);
                self.rows.stacks.push((id, addresses));
            }
            Record::Thread(id, thread) => self.rows.threads.push((id, thread)),
            Record::Module(module) => {
                // The program is the first binary.
                if self.program.is_empty() {
                    self.program.clone_from(&module.path);
                }
                // A binary is reported when it is listed, and when a stack first passes through it.
                self.jit.add_binary(&module);
                let place = (module.start, module.path.clone());
                if self.modules.insert(place, [module.end, module.bias]).is_none() {
                    self.rows.modules.push(module);
                }
            }
            Record::Python(start, end) => {
                // The binary was reported before the first stack through it.
                let mut modules = self
                    .modules
                    .iter()
                    .map(|((start, path), [end, bias])| (path.as_str(), *start..*end, *bias));
                let binary = modules.find(|(_, code, _)| code.contains(&start));
                self.python = Python::new(start..end, binary);
            }
            Record::PythonLocation(number, line, file, function) => {
                self.has_lines_of_python = true;
                add_name(&mut self.rows.names, number, line, file.into_owned(), function.into_owned());
            }
            Record::PythonRefused(reason) => self.python_refusal = Some(reason.into_owned()),
            Record::CommandLine(arguments) => {
                self.row.arguments = arguments.split('\0').map(str::to_owned).collect();
            }
            Record::Driver(reading) => {
                self.driver.insert((reading.device, reading.moment), reading);
                self.has_new_reading = true;
            }
            Record::Message(text) => self.messages.push(text.into_owned()),
            Record::Scope(id, scope) => self.rows.scopes.push((id, scope)),
            Record::Mark(ticks, thread, name) => {
                self.note_mark(&name);
                self.rows.marks.push(ticks, thread, &name);
            }
            Record::Bypass(owner) => self.bypass = Some(owner.into_owned()),
            Record::OutOfMemory(oom, ticks, scope) => {
                let scope = scope.into_owned();
                self.new_failed.push(FailedRequest { process: None, oom, ticks, scope });
            }
        }
    }

    fn write(&mut self, events: &mut [Event], view: &ProcessView, file: &mut RunFile) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let Some(number) = self.number_in(file, view)? else { return Ok(()) };
        file.append(number, rows, events, self.row.held_bytes)?;
        if std::mem::take(&mut self.has_new_reading) {
            file.append_driver(number, &self.driver.values().copied().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Returns the number of the process in the file. The first call adds the process to the file. Returns `None` if the
    /// file has too many processes.
    fn number_in(&mut self, file: &mut RunFile, view: &ProcessView) -> io::Result<Option<u32>> {
        if self.number.is_none() {
            self.row.program.clone_from(&self.program);
            let meta = meta_of_process(&self.settings.options, &self.program, self.pid);
            self.number = file.begin(self.row.clone(), meta, self.clock, view.start_ticks)?;
            // A process without a number is not written.
            self.has_failed = self.number.is_none();
        }
        Ok(self.number)
    }

    /// Writes the sums so far, for readers of a recording whose end is never written.
    fn write_sums(&mut self, region: &Region, view: &ProcessView, file: &mut RunFile) -> io::Result<()> {
        let Some(number) = self.number else { return Ok(()) };
        let end = self.end(region, view);
        self.add_counted_peak(&end);
        file.append_sums(number, &end)?;
        file.update(number, |row| row.held_bytes = self.row.held_bytes)
    }

    /// Raises the row's `held_bytes` to the peak that the recorder counted. That peak includes blocks that sampling omits.
    fn add_counted_peak(&mut self, end: &Snapshot) {
        let counted = end.counted_peak.map_or(0, |peak| peak.bytes);
        self.row.held_bytes = self.row.held_bytes.max(counted);
    }

    fn note_failure(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.has_failed = true;
            self.messages.push(format!("the recording ends here: {error}"));
        }
    }

    /// Returns the binary whose `dlsym` makes driver calls bypass the hook, if the process has loaded the driver. Returns
    /// it only once.
    pub(crate) fn take_bypass(&mut self, region: &Region, view: &ProcessView) -> Option<String> {
        if region.is_bypassed(view) { self.bypass.take() } else { None }
    }

    /// Returns and removes the functions of [`Settings::mark_on`] that were called since the last call, by index.
    pub(crate) fn take_called(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.called)
    }

    /// Notes which wanted function a mark is of. Marks with other names are of the function that is named by its argument.
    fn note_mark(&mut self, name: &str) {
        let wanted = &self.settings.mark_on;
        let index = |name: &str| wanted.iter().position(|function| function == name);
        self.called.extend(index(name).or_else(|| index(MARK_FUNCTION)));
    }

    /// Returns the reason why Python frames of the process are not recorded, if there is one. Returns it only once.
    pub(crate) fn take_python_refusal(&mut self) -> Option<String> {
        self.python_refusal.take()
    }

    /// Ends the recording. Everything must have been drained, and the process must have stopped writing. `replacement` is the
    /// program that the process has executed. Returns messages for the user.
    pub(crate) fn finish(
        mut self,
        region: &Region,
        view: &ProcessView,
        replacement: Option<&ProcessView>,
        file: &mut RunFile,
    ) -> Vec<String> {
        let mut messages = std::mem::take(&mut self.messages);
        match self.jit.read_all(replacement.map(|new| new.clock.1), self.has_lines_of_python) {
            Ok(names) => self.rows.names.frames.extend(names.frames),
            Err(error) => messages.push(format!(
                "functions that process {} generated while it ran have no names: {error}",
                self.pid
            )),
        }
        let unnamed = region.counter(view, Counter::OmittedPythonFrames);
        if unnamed > 0 {
            messages.push(format!(
                "process {} ran more lines of Python than can be named: {unnamed} times, a frame of a new stack was left out",
                self.pid
            ));
        }
        messages.extend(self.end_in(region, view, replacement.is_some(), file));
        messages
    }

    /// Writes the end of the recording. Returns a message if that fails.
    fn end_in(
        &mut self,
        region: &Region,
        view: &ProcessView,
        is_replaced: bool,
        file: &mut RunFile,
    ) -> Option<String> {
        let number = self.number?;
        let end = self.end(region, view);
        self.add_counted_peak(&end);
        let rows = std::mem::take(&mut self.rows);
        let written = if self.has_failed { Ok(()) } else { file.end(number, rows, &end) };
        let written = written.and_then(|()| {
            let ended_ticks = if self.ended_ticks == 0 { ticks() } else { self.ended_ticks };
            let process_end = if is_replaced { ProcessEnd::Replaced } else { self.system.end() };
            file.update(number, |row| {
                (row.end, row.seen_ticks, row.ended_ticks) = (process_end, self.seen_ticks, ended_ticks);
                row.held_bytes = self.row.held_bytes;
                row.has_gaps = region.counter(view, Counter::ThreadsWithoutSums) > 0;
            })
        });
        let process = self.pid;
        written.err().map(|error| format!("the recording of process {process} cannot be ended: {error}"))
    }

    /// Records that the process has left the region, because it has overwritten the region's memory.
    pub(crate) fn vanish(mut self, file: &mut RunFile) {
        let end = if self.system.has_ended() { self.system.end() } else { ProcessEnd::Ended };
        if let Some(number) = self.number {
            // A failure was reported by the collector when it first happened.
            let _ = file.update(number, |row| {
                (row.end, row.seen_ticks, row.ended_ticks) = (end, self.seen_ticks, ticks());
            });
        }
    }

    /// Returns the tables that are written at the end of the recording. The counts per device are empty if they are unknown.
    fn end(&self, region: &Region, view: &ProcessView) -> Snapshot {
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
        let address_space = options.host_heap.then(|| AddressSpace {
            max_resident_bytes: self.max_resident_bytes,
            max_anonymous_bytes: self.max_anonymous_bytes,
            reserved_bytes: counter(Counter::ReservedAddressBytes),
            max_reserved_bytes: counter(Counter::MaxReservedAddressBytes),
            file_bytes: counter(Counter::MappedFileBytes),
            max_file_bytes: counter(Counter::MaxMappedFileBytes),
            on_demand_bytes: self.on_demand.address_bytes(),
            max_on_demand_bytes: self.on_demand.max_address_bytes(),
        });
        Snapshot {
            driver,
            sampling,
            counted_peak: region.counted_peak(view),
            address_space,
            folded,
            scope_sums,
            devices,
            ..Snapshot::default()
        }
    }

    fn devices(&self, sums: &[Sums]) -> Vec<DeviceStatistics> {
        let of_slot = |(slot, sums)| {
            let read = self.events.get(&device_of(slot)).copied().unwrap_or(0);
            statistics_of(slot, sums, read, self.resident_bytes)
        };
        let mut devices: Vec<DeviceStatistics> = sums.iter().enumerate().filter_map(of_slot).collect();
        let more = self.on_demand.sums();
        if let Some(mapped) = devices.iter_mut().find(|counts| counts.device == DeviceId::MAPPED) {
            mapped.allocated_bytes += more.allocated_bytes;
            mapped.freed_bytes += more.freed_bytes;
            mapped.allocations += more.allocations;
            mapped.frees += more.frees;
            mapped.recorded += more.allocations + more.frees;
        }
        devices
    }

    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    pub(crate) fn take_failed_requests(&mut self) -> Vec<FailedRequest> {
        let mut failed = std::mem::take(&mut self.failed);
        failed.iter_mut().for_each(|failed| failed.process = self.number);
        failed
    }
}
