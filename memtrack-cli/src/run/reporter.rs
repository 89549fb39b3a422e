//! Reports while the program runs: who holds the memory when it runs out, and snapshots when `--snapshot-on` requests them. A
//! thread of the collector makes them from the recording so far: reading the recording can take a second, and the programs'
//! shared memory must be drained meanwhile.

use super::collector::{Job, Voice};
use super::kept::{KeptSnapshots, MAX_SNAPSHOTS};
use crate::verbs::run::SnapshotOn;
use memtrack_core::__collector::{FailedRequest, Pace, keep_newest, restrict_to};
use memtrack_core::analysis::holds::log_text;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::summary::memory_in_use_text;
use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::event::DeviceKind;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::recording::ProcessChoice;
use memtrack_core::snapshot::{ProcessRow, ReadingMoment, Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// The maximum number of queued reports.
const MAX_TASKS: usize = 512;
/// The number of rows printed when memory runs out.
const TOP_ROWS: usize = 10;
/// The number of out-of-memory reports per process that are always made. Later ones may take at most a fiftieth of the
/// time.
const UNTHROTTLED_REPORTS: u64 = 3;
/// The maximum time for symbolization.
const SYMBOL_TIME: Duration = Duration::from_millis(500);

/// A report to make.
pub(super) enum Task {
    OutOfMemory(FailedRequest, Option<Subject>),
    Signalled(Subject),
    AtTheEnd(Subject),
}

/// A process to report on.
#[derive(Clone)]
pub(super) struct Subject {
    recording: PathBuf,
    /// The number of the process in the recording.
    pub(super) number: u32,
    pub(super) pid: u32,
    /// Whether this is the process that the command started.
    pub(super) is_first: bool,
}

impl Subject {
    pub(super) fn of(row: &ProcessRow, recording: Option<&Path>) -> Self {
        let recording = recording.map(Path::to_owned).unwrap_or_default();
        Self { recording, number: row.number, pid: row.pid, is_first: row.is_first }
    }
}

/// The thread that reports, which is started for the first report.
pub(super) struct Reporter {
    /// The state that the thread will own; `None` after the thread was started or if it will not be.
    work: Option<Work>,
    tasks: Option<SyncSender<Task>>,
    /// The channel that is disconnected when the thread ends; `None` if the thread was not started.
    ended: Option<Receiver<()>>,
    /// The numbers of failed requests for which the queue had no room: of the heap, and of devices.
    dropped: Arc<[AtomicU64; 2]>,
}

impl Reporter {
    pub(super) fn new(voice: Voice, job: &Job) -> Self {
        let dropped = Arc::<[AtomicU64; 2]>::default();
        let args = &job.args;
        let work = Work {
            voice,
            takes_snapshots_at_oom: args.snapshot_on.contains(&SnapshotOn::Oom),
            max_entries: args.max_entries.max(1),
            folder: job.folder.clone(),
            processes: HashMap::new(),
            dropped: Arc::clone(&dropped),
        };
        Self { work: Some(work), tasks: None, ended: None, dropped }
    }

    fn start(&mut self) {
        let Some(work) = self.work.take() else { return };
        let (tasks, queue) = sync_channel(MAX_TASKS);
        let (ending, ended) = channel();
        let run = move || {
            let _ending = ending;
            work.run(&queue);
        };
        // If the thread cannot be started, both channels are disconnected, and there are no reports.
        let _ = std::thread::Builder::new().name("reports".to_owned()).spawn(run);
        (self.tasks, self.ended) = (Some(tasks), Some(ended));
    }

    /// Queues a report.
    pub(super) fn queue(&mut self, task: Task) {
        self.start();
        let Some(tasks) = &self.tasks else { return };
        if let Err(TrySendError::Full(Task::OutOfMemory(failed, _))) = tasks.try_send(task) {
            self.dropped[usize::from(is_device(&failed))].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the thread end after the queued reports. The first call returns the channel that is disconnected when the
    /// thread ends.
    pub(super) fn finish(&mut self) -> Option<Receiver<()>> {
        (self.work, self.tasks) = (None, None);
        self.ended.take()
    }
}

/// The state of the reports and snapshots of one process.
#[derive(Default)]
struct ProcessReports {
    /// The number of snapshots, which is also the number of the newest one.
    snapshots: u32,
    tried_at_oom: usize,
    at_oom: KeptSnapshots,
    on_signal: KeptSnapshots,
    /// The number of times that memory ran out and no snapshot was written, since the last out-of-memory snapshot.
    skipped_snapshots: u64,
    snapshot_pace: Pace,
    reports: u64,
    /// The number of times that memory ran out and no report was made, since the last report.
    skipped_reports: u64,
    report_pace: Pace,
    /// The time in ticks at which memory last ran out.
    last_oom: Option<u64>,
}

struct Work {
    voice: Voice,
    takes_snapshots_at_oom: bool,
    max_entries: u64,
    /// The folder for the snapshots; `None` if it is the recording's folder.
    folder: Option<PathBuf>,
    /// The reports by process id; 0 stands for all processes that have no recording.
    processes: HashMap<u32, ProcessReports>,
    /// The numbers of failed requests without a report, shared with [`Reporter`].
    dropped: Arc<[AtomicU64; 2]>,
}

/// Why a snapshot is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    OutOfMemory,
    AtTheEnd,
    Signalled,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::AtTheEnd => "at the end",
            Self::Signalled => "SIGUSR2",
        }
    }
}

impl Work {
    fn run(mut self, queue: &Receiver<Task>) {
        for task in queue {
            match task {
                Task::OutOfMemory(failed, subject) => self.out_of_memory(subject.as_ref(), &failed),
                Task::Signalled(subject) => self.write(&subject, Reason::Signalled, None),
                Task::AtTheEnd(subject) => self.write(&subject, Reason::AtTheEnd, None),
            }
        }
        self.report_skipped();
    }

    fn say(&self, message: std::fmt::Arguments<'_>) {
        self.voice.say(&format!("memtrack: {message}\n"));
    }

    fn reports_of(&mut self, subject: Option<&Subject>) -> &mut ProcessReports {
        self.processes.entry(subject.map_or(0, |subject| subject.pid)).or_default()
    }

    fn out_of_memory(&mut self, subject: Option<&Subject>, failed: &FailedRequest) {
        let wants_snapshot = self.takes_snapshots_at_oom && is_device(failed);
        let state = self.reports_of(subject);
        let may_report = state.reports < UNTHROTTLED_REPORTS || state.report_pace.is_due();
        if !may_report {
            state.skipped_reports += 1;
        }
        let may_write =
            wants_snapshot && (state.tried_at_oom < MAX_SNAPSHOTS || state.snapshot_pace.is_due());
        if wants_snapshot {
            state.tried_at_oom += usize::from(may_write);
            state.skipped_snapshots += u64::from(!may_write);
        }
        if !may_report && !may_write {
            return;
        }
        let begun = Instant::now();
        let snapshot = subject.and_then(|subject| Self::read_until(subject, Some(failed.ticks)));
        if may_report {
            self.report(subject, failed, snapshot.as_ref());
        }
        if may_write && let Some(subject) = subject {
            if let Some(snapshot) = &snapshot {
                self.print_largest(failed, snapshot);
            }
            self.write(subject, Reason::OutOfMemory, Some(failed.ticks));
        }
        let state = self.reports_of(subject);
        state.last_oom = Some(failed.ticks);
        state.report_pace.done(begun.elapsed());
        state.snapshot_pace.done(begun.elapsed());
    }

    /// Prints what held the memory when a request failed.
    fn report(&mut self, subject: Option<&Subject>, failed: &FailedRequest, snapshot: Option<&Snapshot>) {
        let state = self.reports_of(subject);
        state.reports += 1;
        let more = match std::mem::take(&mut state.skipped_reports) {
            0 => String::new(),
            1 => "; and once before, which was not reported".to_owned(),
            times => format!("; and {times} times before, which were not reported"),
        };
        let since = state.last_oom.map(|ticks| (ticks, "memory last ran out"));
        self.say(format_args!("{}{}{more}", failed.oom, failed.scope));
        if let Some(snapshot) = snapshot {
            self.voice.say(&log_text(snapshot, Some(failed.oom), since, SYMBOL_TIME));
        }
    }

    /// Prints the blocks that were live when memory ran out, largest first.
    fn print_largest(&self, failed: &FailedRequest, snapshot: &Snapshot) {
        let device = failed.oom.device;
        let at = Moment::last_oom(snapshot, device).unwrap_or(Moment::End);
        let options = TopOptions::new().limit(TOP_ROWS).at(at);
        let mut symbols = Symbolizer::of(snapshot);
        let by = By::default_for(snapshot, &mut symbols, &options);
        let report = top_with(snapshot, &mut symbols, by, device, &options);
        let of_oom = |moment| moment == ReadingMoment::OutOfMemory;
        let reading =
            snapshot.driver.iter().find(|reading| reading.device == device && of_oom(reading.moment));
        let parts = reading.map(|reading| format!("\n{}", memory_in_use_text(reading))).unwrap_or_default();
        self.say(format_args!("{}{parts}\n{report}", failed.oom));
    }

    /// Writes the next snapshot of a process, from its recording up to the time `until` in ticks.
    fn write(&mut self, subject: &Subject, reason: Reason, until: Option<u64>) {
        let Some(mut snapshot) = Self::read_until(subject, until) else { return };
        keep_newest(&mut snapshot, self.max_entries);
        let beside = match (&self.folder, subject.recording.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => subject.recording.clone(),
        };
        let state = self.reports_of(Some(subject));
        state.snapshots += 1;
        let number = state.snapshots;
        let mut path: OsString = beside.into();
        if !subject.is_first {
            path.push(format!(".{}", subject.pid));
        }
        path.push(format!(".{number}.pickle"));
        let path = PathBuf::from(path);
        let saved = snapshot.save_as(&path, &mut Symbolizer::of(&snapshot));
        let mut notes = String::new();
        if reason == Reason::OutOfMemory {
            notes = match std::mem::take(&mut state.skipped_snapshots) {
                0 => String::new(),
                1 => "; once before there was no time for one".to_owned(),
                times => format!("; {times} times before there was no time for one"),
            };
        }
        let kept = match reason {
            Reason::OutOfMemory => Some(&mut state.at_oom),
            Reason::Signalled => Some(&mut state.on_signal),
            Reason::AtTheEnd => None,
        };
        if let Some(kept) = kept.filter(|_| saved.is_ok()) {
            notes += &kept.add(number, path.clone()).unwrap_or_default();
        }
        let reason = reason.name();
        match saved {
            Ok(()) => self.say(format_args!("{reason}: wrote {}{notes}", path.display())),
            Err(error) => self.say(format_args!("{reason}: cannot write {}: {error}{notes}", path.display())),
        }
    }

    /// Reads what a process recorded up to the given time in ticks, or all that it recorded if no time is given. Returns `None`
    /// if the recording cannot be read.
    fn read_until(subject: &Subject, ticks: Option<u64>) -> Option<Snapshot> {
        let options = LoadOptions::new().process(ProcessChoice::Number(subject.number));
        let mut snapshot = Snapshot::open(&subject.recording, options).ok()?.snapshot;
        if let Some(ticks) = ticks {
            restrict_to(&mut snapshot, ticks);
        }
        // Up to the given time, the recording is complete.
        snapshot.meta.complete = true;
        Some(snapshot)
    }

    /// Prints how often memory ran out without a report or a snapshot.
    fn report_skipped(&self) {
        let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let sum = |of: fn(&ProcessReports) -> u64| self.processes.values().map(of).sum::<u64>();
        let [heap, devices] = self.dropped.each_ref().map(|count| count.load(Ordering::Relaxed));
        match sum(|state| state.skipped_reports) + heap + devices {
            0 => {}
            more => {
                self.say(format_args!("requests were refused {} more, which is not reported", times(more)))
            }
        }
        let without_snapshot = if self.takes_snapshots_at_oom { devices } else { 0 };
        match sum(|state| state.skipped_snapshots) + without_snapshot {
            0 => {}
            more => self.say(format_args!(
                "memory ran out {} more, for which there is no snapshot: after the first {MAX_SNAPSHOTS} they may take a \
                 fiftieth of the time",
                times(more)
            )),
        }
    }
}

/// Returns whether the memory of a device, or pinned memory, was requested.
fn is_device(failed: &FailedRequest) -> bool {
    matches!(failed.oom.device.kind(), DeviceKind::Device | DeviceKind::Pinned)
}
