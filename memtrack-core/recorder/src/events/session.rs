//! The running session: from the first `start` to the matching `stop`, on any threads. Overlapping monitors share one
//! session, with the options of the first one.

use super::collect::Baseline;
use super::fork::ForkCell;
use super::inherit::{count_children, inherited_options, may_write_file, omitted_children, publish};
use super::pace::Pace;
use super::report_hook::PrintedReports;
use super::stream_file::Stream;
use super::threads::DEVICE_SLOTS;
use super::totals::Sums;
use super::{Enabled, Options, RECORDER, Recorder, barrier, binaries, exit, fork, ring, scope_sums, threads};
use crate::host::reserve;
use crate::{clock, settings};
use crate::{environment, message, reentry, scope, shared_memory, signals, stack, switch};
use memtrack_file::{ReplacingFile, tagged_path};
use memtrack_model::snapshot::Snapshot;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;

/// A running session.
pub(super) struct Session {
    monitors: u32,
    pub(super) options: Options,
    pub(super) baseline: Baseline,
    /// The number of dumps that were written because memory ran out.
    dumps: u64,
    /// Limits further dumps, once the maximum number has been written.
    pub(super) dump_pace: Pace,
    /// The printed reports of what holds the memory.
    pub(super) reports: PrintedReports,
    /// Limits how often a panic that may be caught writes the recording.
    pub(super) panic_pace: Pace,
}

impl Session {
    fn new(options: Options, baseline: Baseline) -> Self {
        let (dump_pace, panic_pace) = (Pace::default(), Pace::default());
        Self {
            monitors: 1,
            options,
            baseline,
            dumps: 0,
            dump_pace,
            reports: PrintedReports::default(),
            panic_pace,
        }
    }
}

pub(super) static SESSION: ForkCell<Mutex<Option<Session>>> =
    ForkCell::new(|| Mutex::new(inherited_session()));

/// Starts recording, or joins the running session. Returns whether the caller is now a monitor of the session and must
/// call [`stop`]; false if the options enable nothing and no session runs. If the limit on the process's address space
/// leaves too little room for a recording, prints a message, records nothing and returns false.
///
/// # Errors
/// Fails when the stream's file cannot be created, or when the name of the dump has no known format. Nothing is recorded
/// in these cases.
pub fn start(options: &Options) -> io::Result<bool> {
    let _no_cancellation = signals::CancellationBlocked::now();
    let _inside = reentry::enter();
    // Made absolute because the program may change its working directory later, as daemons do.
    let options = &options.clone().with_absolute_paths()?;
    let mut session = SESSION.lock();
    if let Some(running) = session.as_mut() {
        running.monitors += 1;
        let lost = options.describe_ignored(&running.options, crate::host::is_installed());
        drop(session);
        if let Some(lost) = lost {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| message::print(lost));
        }
        return Ok(true);
    }
    if options.enabled == Enabled::None {
        return Ok(false);
    }
    if !environment::has_address_space() {
        drop(session);
        message::print(
            "nothing is recorded: the limit of the address space (`ulimit -v`) leaves less than 256 MiB, and a recording may \
             need that",
        );
        return Ok(false);
    }
    if let Some(path) = &options.dump_on_oom {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        with_file_name(path, || (dumper().accepts)(path).map_err(refused))?;
    }
    if !shared_memory::is_connected() {
        // With shared memory the reserve is not needed: the command makes the reports that a program cannot make once
        // its memory has run out.
        reserve::prepare();
    }
    settings::set_table_bounds(options);
    stack::capture::prepare();
    binaries::loaded();
    if shared_memory::is_connected() {
        shared_memory::log_command_line();
        binaries::log_all();
        scope::log_all();
    }
    fork::watch();
    let recorder = RECORDER.get();
    recorder.clear();
    message::remember_destination();
    let (mut stream_error, mut thread_error) = (None, None);
    if let Some(path) = &options.output {
        exit::install_handlers();
        if options.stream {
            match with_file_name(path, || Stream::create(path, options)) {
                Ok(stream) => {
                    recorder.open_stream(stream)?;
                    thread_error = recorder.start_stream_thread().err();
                }
                // The recordings of earlier runs must not prevent the program from starting.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => stream_error = Some(error),
                Err(error) => return Err(error),
            }
        }
    }
    scope_sums::begin();
    clock::first_reading();
    settings::apply(options, clock::ticks().max(recorder.live.newest_ticks() + 1));
    threads::forget_copied_settings();
    publish(Some(options));
    if options.output.is_some() || options.dump_on_oom.is_some() {
        count_children();
    }
    let baseline = Baseline::now();
    super::counted_peak::set_base(&baseline.sums[0]);
    #[cfg(feature = "cuda")]
    recorder.readings.begin(&baseline.sums);
    super::running_sums::begin(options, &baseline);
    *session = Some(Session::new(options.clone(), baseline));
    let host = if options.wants_host_heap() { switch::HOST } else { 0 };
    let operators = if options.wants_operators() { switch::OPERATORS } else { 0 };
    switch::set(switch::EVENTS | switch::SCOPES | host | operators, true);
    drop(session);
    if let Some(error) = stream_error {
        message::print(format_args!("this run is recorded in memory only: {error}"));
    }
    if let Some(error) = thread_error {
        message::print(format_args!(
            "no thread for the stream, so chunks are written only when full: {error}"
        ));
    }
    // The stream thread may have locked the stream just now, and the program may end before that thread prints.
    recorder.print_messages(MESSAGE_TIMEOUT);
    Ok(true)
}

/// How long the start of a session waits for the stream's lock.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Ends one monitor. Ending the last monitor ends the session and writes its recording.
///
/// Returns the recording so far (an empty one if no session ran), and whether it was written.
pub fn stop() -> (Snapshot, io::Result<()>) {
    let _no_cancellation = signals::CancellationBlocked::now();
    read_driver();
    let _inside = reentry::enter();
    let mut session = SESSION.lock();
    let Some(running) = session.as_mut() else { return (Snapshot::default(), Ok(())) };
    running.monitors -= 1;
    if running.monitors > 0 {
        return (RECORDER.get().snapshot(&running.options, &running.baseline, false), Ok(()));
    }
    end_recording();
    publish(None);
    super::running_sums::end();
    let Session { options, baseline, reports, .. } = session.take().expect("checked above");
    let recorder = RECORDER.get();
    let (snapshot, written) = match has_memory() {
        Ok(()) => {
            let snapshot = recorder.snapshot(&options, &baseline, true);
            let written = write(recorder, &options, &snapshot);
            (snapshot, written)
        }
        Err(error) => (Snapshot::default(), Err(error)),
    };
    recorder.clear();
    drop(session);
    report_omissions();
    reports.print_skipped();
    (snapshot, written)
}

/// Checks whether there is memory for a snapshot, as far as that can be determined. Always succeeds unless memory has
/// run out earlier. After an error, the program continues without the recording.
pub(super) fn has_memory() -> io::Result<()> {
    // For the snapshot's tables, the buffers for writing them, and a margin.
    let wanted_bytes = || 3 * usize::try_from(super::own_bytes()).unwrap_or(0) + (32 << 20);
    if !reserve::ran_out() || reserve::is_available(wanted_bytes()) {
        return Ok(());
    }
    let why = "memory ran out while it was made, and there is not enough to write it";
    Err(io::Error::new(io::ErrorKind::OutOfMemory, why))
}

/// Prints how many forked processes wrote no file, which devices were not recorded, and whether recording ended early
/// because memory ran out. The caller must hold no lock.
pub(super) fn report_omissions() {
    if reserve::ran_out() {
        message::print("memory ran out while recording: what happened after that is not in the recording");
    }
    [RECORDER.get().omitted_devices_message(), omitted_children()]
        .into_iter()
        .flatten()
        .for_each(message::print);
}

/// Switches recording off and waits for the running hooks, so that all data collected afterwards describes the same
/// moment: a stream must not contain an event that is newer than its list of live blocks.
pub(super) fn end_recording() {
    switch::set(switch::EVENTS | scope::switch_to_turn_off() | switch::HOST | switch::OPERATORS, false);
    barrier::wait_for_hooks();
}

/// Reads the CUDA driver's memory figures for the next snapshot, if this thread has a context. Must be called while no
/// lock is held.
fn read_driver() {
    #[cfg(feature = "cuda")]
    super::driver_readings::read();
}

/// Returns the recording so far; `None` if no session runs or there is no memory for a snapshot.
pub fn snapshot() -> Option<Snapshot> {
    let _no_cancellation = signals::CancellationBlocked::now();
    read_driver();
    let _inside = reentry::enter();
    let session = SESSION.lock();
    let running = session.as_ref().filter(|_| has_memory().is_ok())?;
    Some(RECORDER.get().snapshot(&running.options, &running.baseline, false))
}

/// Returns the recording so far, and the path of the dump to write because memory ran out. `None` if no session runs, if
/// no dump is requested, if this process may not write a file, or if `max_dumps` were written and the last dump is too
/// recent. The first dump and the newest of the later dumps are kept.
pub(super) fn dump_on_oom(max_dumps: u64) -> Option<(Snapshot, PathBuf)> {
    let _no_cancellation = signals::CancellationBlocked::now();
    let mut session = SESSION.lock();
    let running = session.as_mut()?;
    let may_dump = running.dumps < max_dumps || running.dump_pace.is_due();
    let path = running.options.dump_on_oom.as_ref().filter(|_| may_dump && may_write_file())?;
    let path = dump_path(path, running.dumps, max_dumps);
    running.dumps += 1;
    Some((RECORDER.get().snapshot(&running.options, &running.baseline, false), path))
}

/// Returns the path of the dump that follows `earlier` dumps, if at most `max_dumps` are kept.
fn dump_path(path: &Path, earlier: u64, max_dumps: u64) -> PathBuf {
    match earlier {
        0 => path.to_owned(),
        count => tagged_path(path, &((count - 1) % (max_dumps - 1) + 1).to_string()),
    }
}

/// Notes that a dump was written, and how long that took.
pub(super) fn note_dump(cost: Duration) {
    if let Some(running) = SESSION.lock().as_mut() {
        running.dump_pace.done(cost);
    }
}

/// Returns the sums of each device slot at the start of the session; the current sums if no session runs.
pub fn sums_at_start() -> Vec<Sums> {
    SESSION.lock().as_ref().map_or_else(|| Baseline::now().sums, |running| running.baseline.sums).to_vec()
}

/// Writes the recording to the path in the options, or finishes its stream. An error contains the file's name.
pub(super) fn write(recorder: &Recorder, options: &Options, snapshot: &Snapshot) -> io::Result<()> {
    let Some(path) = &options.output else { return Ok(()) };
    with_file_name(path, || write_to(path, recorder, options, snapshot))
}

/// Calls `act`, which works with the file at `path`; an error starts with the file's name.
pub fn with_file_name<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    signals::without_write_signals(act)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn write_to(path: &Path, recorder: &Recorder, options: &Options, snapshot: &Snapshot) -> io::Result<()> {
    if !options.stream {
        // A forked child without events leaves no file.
        let is_empty = snapshot.events.is_empty() && snapshot.devices.is_empty();
        let skip = is_empty && fork::generation() > 0 || !may_write_file();
        return if skip { Ok(()) } else { save(snapshot, path) };
    }
    match recorder.close_stream()? {
        Some(stream) => stream.finish(recorder, snapshot),
        None => Ok(()),
    }
}

/// Writes a snapshot of the recorder as a `.memtrack` file, atomically.
///
/// # Errors
/// Fails when the file cannot be written.
pub fn save(snapshot: &Snapshot, path: &Path) -> io::Result<()> {
    let mut file = ReplacingFile::create(path)?;
    memtrack_file::write(snapshot, &mut file)?;
    file.commit()
}

/// The functions that write dumps, which may support more formats than the recorder does.
#[derive(Clone, Copy, Debug)]
pub struct Dumper {
    /// Checks that a file with this name can be written; the error contains the reason if not.
    pub accepts: fn(&Path) -> Result<(), String>,
    /// Writes a snapshot to a file, atomically.
    pub write: fn(&Snapshot, &Path) -> io::Result<()>,
}

static DUMPER: OnceLock<Dumper> = OnceLock::new();

/// Registers the functions that write dumps; later registrations have no effect. Without them, dumps are `.memtrack`
/// files.
pub fn set_dumper(dumper: Dumper) {
    // It does not matter which functions are registered: all support the same formats.
    let _ = DUMPER.set(dumper);
}

/// Returns the functions that write dumps.
pub fn dumper() -> Dumper {
    let accepts = |path: &Path| match path.extension() {
        Some(suffix) if suffix.eq_ignore_ascii_case("memtrack") => Ok(()),
        _ => Err("the name must end in .memtrack (the feature `formats` supports other formats)".to_owned()),
    };
    DUMPER.get().copied().unwrap_or(Dumper { accepts, write: save })
}

impl Recorder {
    /// Removes events, blocks and segments. Stacks and scopes keep their ids.
    fn clear(&self) {
        self.live.clear();
        self.segments.clear();
        #[cfg(feature = "cuda")]
        self.driver.clear();
        self.drop_stream();
        let rings = {
            let mut store = self.store();
            std::mem::replace(&mut store.rings, std::array::from_fn(|_| ring::Ring::default()))
        };
        drop(rings);
        super::operators::clear();
        super::marks::clear();
        crate::tasks::clear();
        crate::host::forget_samples();
        super::counted_peak::clear();
    }
}

fn inherited_session() -> Option<Session> {
    let options = inherited_options()?;
    let sums = [Sums::default(); DEVICE_SLOTS];
    Some(Session::new(options, Baseline { clock: clock::first_reading(), sums }))
}

/// Returns whether this process is a forked child that continues its parent's session with a separate stream.
pub(super) fn is_streaming_child() -> bool {
    inherited_options().is_some_and(|options| options.stream && options.output.is_some())
}

/// Returns the stream for a forked child's new recorder, or the error if it could not be created; `None` if the child
/// needs no stream.
pub(super) fn stream_after_fork() -> Option<io::Result<Stream>> {
    let options = inherited_options().filter(|options| options.stream)?;
    let path = options.output.as_ref().filter(|_| may_write_file())?;
    Some(with_file_name(path, || Stream::create(path, &options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_newest_dumps_stay() {
        let names: Vec<String> = (0..12)
            .map(|earlier| dump_path(Path::new("a.pickle.gz"), earlier, 4).to_string_lossy().into_owned())
            .collect();
        assert_eq!(names[0], "a.pickle.gz");
        let numbers = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2].map(|number| format!("a.{number}.pickle.gz"));
        assert_eq!(names[1..], numbers);
    }
}
