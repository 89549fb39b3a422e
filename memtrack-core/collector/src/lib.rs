//! The command's part in `memtrack run`: reads the data that the programs of a run write into shared memory
//! ([`Region`]), and writes the recording.
//!
//! A [`Collector`] is polled by the command while the program runs, and once more when it has ended. The shared memory of a
//! killed program still exists at that point, so nothing that a hook has written is lost.
//!
//! - `process`: one recorded process: its tables, and the events that are drained from its pages
//! - `resident`: which pages of a process are in memory, from time to time
//! - `on_demand`: memory that a process maps and that no call shows
//! - `jit`: the names of code that programs generate while they run
//! - `python`: the places of Python frames in stacks
//! - `recording`: the file of the run, in several parts if its size is limited
//! - `snapshot`: snapshots of a program that is still running
//! - `system`: the system's information about a process
//!
//! **How often is the memory polled?** Programs make no system call to record an event, so they cannot wake the command. The
//! command sleeps for a millisecond after a poll that found events, and for up to 10 ms if there have been none for a while.
//! The end of a process wakes it.
//!
//! This package is part of `memtrack-core`; only the command uses it.

mod jit;
mod on_demand;
mod process;
mod python;
mod recording;
mod resident;
mod snapshot;
mod system;

use memtrack_model::snapshot::{ProcessEnd, ProcessRow, Unrecorded};
use memtrack_recorder::recorder::Options;
use memtrack_recorder::shared_memory::{ProcessView, Region};
use process::Process;
use recording::RunFile;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use memtrack_recorder::recorder::Pace;
pub use process::FailedRequest;
pub use snapshot::{keep_newest, restrict_to};
pub use system::exit_status;

/// The number of free extents, of 64 KiB each, while no process is recorded. Of these, 8 are kept for processes that begin.
/// Reserving an extent takes the system 10 µs, and delays the program's start by as much.
const FIRST_EXTENTS: usize = 20;
/// The same number for a run that does not record the heap: a program's first events are few then.
const FIRST_EXTENTS_WITHOUT_HEAP: usize = 11;
/// The number of free extents while a process is recorded: 16 MiB.
const FREE_EXTENTS: usize = 256;
/// The same numbers for a run that records every block (`--exact`), which samples none when the command is behind: 16 MiB at
/// first, and 128 MiB while a process is recorded.
const FIRST_EXTENTS_OF_EXACT: usize = 256;
const FREE_EXTENTS_OF_EXACT: usize = 2048;

/// The shortest and the longest time between two polls.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// The time between two readings of the resident memory of a process without events.
const RESIDENT_INTERVAL: Duration = Duration::from_millis(500);

/// The settings of a run: which programs are recorded, with which options, and in which file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file of the recording.
    pub output: PathBuf,
    /// The recording options of the programs.
    pub options: Options,
    /// The maximum number of programs that are recorded besides the one that the command starts.
    pub max_programs: u64,
    /// The Python functions whose calls are marks.
    pub mark_on: Vec<String>,
    /// The names of the files of memtrack's libraries that the programs load.
    pub libraries: Vec<String>,
    /// The process id of the command. The program that it starts is its child, or the same process after `exec`.
    pub command: u32,
}

impl Settings {
    /// Returns the settings for a program beyond the limit of programs.
    fn with_smallest_budget(&self) -> Self {
        Self { options: self.options.clone().smallest_budget(), ..self.clone() }
    }
}

/// Reads the shared memory of a run and writes its recording.
#[derive(Debug)]
pub struct Collector {
    region: Region,
    settings: Settings,
    /// The processes that use the region, by number.
    processes: BTreeMap<usize, Process>,
    file: RunFile,
    /// The pause before the next poll.
    pause: Duration,
    resident_read: Instant,
    /// Whether the user was warned about missing memory.
    has_warned: bool,
    /// Messages for the user.
    messages: Vec<String>,
    failed: Vec<FailedRequest>,
    /// The processes whose driver calls bypass the hook: process id, and the binary whose `dlsym` is called instead.
    bypassed: Vec<(u32, String)>,
    /// The processes whose Python frames are not recorded, the first for each reason: process id and reason.
    without_python: Vec<(u32, String)>,
    /// The reasons for which Python frames of any process are not recorded.
    python_refusals: BTreeSet<String>,
    /// The functions of [`Settings::mark_on`] that were called, by index.
    called: BTreeSet<usize>,
}

impl Collector {
    /// Creates the shared memory of a run.
    ///
    /// # Errors
    /// Fails when the system has no memory for it.
    pub fn create(settings: Settings) -> io::Result<Self> {
        let samples_beyond_limit = settings.options.wants_host_heap();
        let region = Region::create(
            first_extents(&settings),
            settings.command,
            settings.max_programs,
            samples_beyond_limit,
        )?;
        let file = RunFile::new(settings.output.clone(), settings.options.max_bytes);
        Ok(Self {
            region,
            settings,
            processes: BTreeMap::new(),
            file,
            pause: SHORTEST_PAUSE,
            resident_read: Instant::now(),
            has_warned: false,
            messages: Vec::new(),
            failed: Vec::new(),
            bypassed: Vec::new(),
            without_python: Vec::new(),
            python_refusals: BTreeSet::new(),
            called: BTreeSet::new(),
        })
    }

    /// Returns the path at which programs find the shared memory while the process with this id has it open.
    pub fn memory_path(&self, pid: u32) -> PathBuf {
        self.region.path(pid)
    }

    /// Returns the descriptor of the shared memory.
    pub fn descriptor(&self) -> i32 {
        self.region.descriptor()
    }

    /// Returns how long to wait before the next poll.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Waits until the next poll is due: until a process ends, or `other` is readable, or the [pause](Self::pause) is over.
    /// Returns whether `other` is readable.
    pub fn wait(&self, other: Option<i32>) -> bool {
        let processes = self.processes.values().filter_map(Process::descriptor);
        let descriptors: Vec<i32> = other.into_iter().chain(processes).collect();
        system::wait(&descriptors, self.pause) && other.is_some()
    }

    /// Reads the data written since the last call, writes it to the recordings, and ends the recordings of processes that
    /// have ended.
    pub fn poll(&mut self) {
        let has_events = self.read_all();
        let unrecorded = self.unrecorded();
        // A failure was reported where it first happened.
        let _ = self.file.set_unrecorded(unrecorded);
        let free = match self.has_processes() {
            true if records_every_block(&self.settings) => FREE_EXTENTS_OF_EXACT,
            true => FREE_EXTENTS,
            false => first_extents(&self.settings),
        };
        if let Err(error) = self.region.keep_alive(free) {
            // Reported only once: without more memory, processes lose events, and the lost events are counted.
            if !std::mem::replace(&mut self.has_warned, true) {
                self.messages.push(format!("no memory for more events: {error}"));
            }
        }
        self.pause = if has_events { SHORTEST_PAUSE } else { (self.pause * 5 / 4).min(LONGEST_PAUSE) };
    }

    /// Drains all processes, and ends those that have ended. Returns whether there were events.
    fn read_all(&mut self) -> bool {
        let now = Instant::now();
        let reads_resident = now.duration_since(self.resident_read) >= RESIDENT_INTERVAL;
        if reads_resident {
            self.resident_read = now;
        }
        let views = self.region.processes();
        self.remove_vanished(&views);
        let mut has_events = false;
        for view in &views {
            has_events |= self.drain(view, reads_resident);
        }
        self.end_processes(&views);
        has_events
    }

    /// Drains a process. Returns whether there were events.
    fn drain(&mut self, view: &ProcessView, reads_resident: bool) -> bool {
        let process = self.processes.entry(view.number).or_insert_with(|| Process::new(view, &self.settings));
        let has_events = process.drain(&self.region, view, &mut self.file);
        if has_events || reads_resident {
            process.read_resident(reads_resident);
            process.read_pages(&mut self.file);
        }
        self.messages.append(&mut process.take_messages());
        self.failed.append(&mut process.take_failed_requests());
        let bypass = process.take_bypass(&self.region, view);
        self.bypassed.extend(bypass.map(|owner| (view.pid, owner)));
        self.called.append(&mut process.take_called());
        let refusal = process.take_python_refusal();
        if let Some(reason) = refusal.filter(|reason| self.python_refusals.insert(reason.clone())) {
            self.without_python.push((view.pid, reason));
        }
        has_events
    }

    /// Ends the recordings of the processes that have ended or are now running another program.
    fn end_processes(&mut self, views: &[ProcessView]) {
        let mut ended = BTreeSet::new();
        for view in views {
            if replacement(view, views).is_some()
                || self.processes.get_mut(&view.number).is_some_and(Process::has_ended)
            {
                ended.insert(view.number);
            }
        }
        if ended.is_empty() {
            return;
        }
        // Queried again, because the processes may have taken more memory before they ended, or have executed a program that
        // has ended too.
        let views = self.region.processes();
        for view in views.iter().filter(|view| ended.contains(&view.number)) {
            // The first call reads what was written between the last drain and the end. The second call is for requests
            // that failed just before the end.
            self.drain(view, false);
            self.drain(view, false);
            self.end(view, replacement(view, &views));
        }
    }

    /// Removes the processes that are no longer in the region. This happens if a program overwrites the region's memory,
    /// which ends the program's own recording.
    fn remove_vanished(&mut self, views: &[ProcessView]) {
        let is_present = |number: usize, process: &Process| {
            views.iter().any(|view| view.number == number && process.is_of(view))
        };
        let vanished = self.processes.iter().filter(|(number, process)| !is_present(**number, process));
        let vanished: Vec<usize> = vanished.map(|(number, _)| *number).collect();
        for process in vanished.iter().filter_map(|number| self.processes.remove(number)).collect::<Vec<_>>()
        {
            process.vanish(&mut self.file);
        }
    }

    fn end(&mut self, view: &ProcessView, replacement: Option<&ProcessView>) {
        if let Some(process) = self.processes.remove(&view.number) {
            self.messages.extend(process.finish(&self.region, view, replacement, &mut self.file));
        }
        self.region.free_process(view);
    }

    /// Returns and removes the messages for the user.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Returns and removes the failed requests for memory since the last call.
    pub fn take_failed_requests(&mut self) -> Vec<FailedRequest> {
        std::mem::take(&mut self.failed)
    }

    /// Returns and removes the processes whose CUDA memory is not recorded, because the named binary exports its own `dlsym`,
    /// so that driver calls do not reach the hook.
    pub fn take_bypassed(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.bypassed)
    }

    /// Returns and removes the processes whose Python frames are not recorded, with the reasons. Each reason is returned only
    /// for the first process.
    pub fn take_without_python(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.without_python)
    }

    /// Returns the functions of [`Settings::mark_on`] that were not called so far.
    pub fn uncalled(&self) -> impl Iterator<Item = &str> {
        let functions = self.settings.mark_on.iter().enumerate();
        functions.filter(|(index, _)| !self.called.contains(index)).map(|(_, function)| function.as_str())
    }

    /// Returns how many programs were beyond the limit. If the heap is recorded, these programs are recorded with the
    /// smallest budget.
    pub fn programs_beyond_limit(&self) -> u64 {
        self.region.unrecorded().programs
    }

    /// Returns how many processes are not recorded, by reason.
    pub fn unrecorded(&self) -> Unrecorded {
        let known = self.region.unrecorded();
        // If the heap is recorded, programs beyond the limit are recorded with the smallest budget.
        let programs = if self.settings.options.wants_host_heap() { 0 } else { known.programs };
        Unrecorded { programs, without_room: self.file.omitted(), ..known }
    }

    /// Returns the id of the process that the command started, if it has begun to record and is still running.
    pub fn first_process(&self) -> Option<u32> {
        self.processes.values().find_map(Process::first_pid)
    }

    /// Returns whether any recorded process is still running.
    pub fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Returns the path of the recording; `None` if nothing was recorded so far.
    pub fn recording(&self) -> Option<&Path> {
        self.file.path()
    }

    /// Returns the recorded processes so far, by number.
    pub fn rows(&self) -> &[ProcessRow] {
        self.file.rows()
    }

    /// Records the end of the process that the command started.
    pub fn set_end(&mut self, pid: u32, end: ProcessEnd) {
        let is_of_first = |row: &&ProcessRow| row.pid == pid && row.is_first;
        let last = self.rows().iter().filter(is_of_first).max_by_key(|row| row.begun_ticks);
        let Some(number) = last.filter(|row| row.end != ProcessEnd::Running).map(|row| row.number) else {
            return;
        };
        if let Err(error) = self.file.update(number, |row| row.end = end) {
            self.messages.push(format!("the end of process {pid} is not recorded: {error}"));
        }
    }

    /// Ends the file, after all processes have ended.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.file.finish()
    }
}

/// Returns the number of free extents while no process is recorded.
fn first_extents(settings: &Settings) -> usize {
    match settings.options.wants_host_heap() {
        true if records_every_block(settings) => FIRST_EXTENTS_OF_EXACT,
        true => FIRST_EXTENTS,
        false => FIRST_EXTENTS_WITHOUT_HEAP,
    }
}

/// Returns whether the run records every block of the heap.
fn records_every_block(settings: &Settings) -> bool {
    settings.options.wants_host_heap() && !settings.options.samples_host_heap()
}

/// Returns the program that the process has executed, if it is in `views` too.
fn replacement<'a>(view: &ProcessView, views: &'a [ProcessView]) -> Option<&'a ProcessView> {
    let is_newer = |other: &&ProcessView| {
        other.pid == view.pid && other.image != view.image && other.clock.0 > view.clock.0
    };
    views.iter().filter(is_newer).min_by_key(|other| other.clock.0)
}
