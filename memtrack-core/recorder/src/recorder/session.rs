//! The running session: from the first `start` to the matching `stop`, whoever calls them. Monitors that overlap share
//! one session; the first one's options hold.

use super::collect::Baseline;
use super::fork::ForkCell;
use super::inherit::{count_children, inherited_options, left_out, may_leave_a_file, publish};
use super::pace::Pace;
use super::stream_file::Stream;
use super::telling::Told;
use super::threads::DEVICE_SLOTS;
use super::totals::Sums;
use super::{
    Enabled, Options, RECORDER, Recorder, barrier, binaries, clock, ending, fork, ring, scope_sums, settings,
    threads,
};
use crate::host::reserve;
use crate::{message, reentry, scope, signals, stack, switch};
use memtrack_file::{ReplacingFile, tagged};
use memtrack_model::snapshot::Snapshot;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

/// A session that runs.
pub(super) struct Session {
    monitors: u32,
    pub(super) options: Options,
    pub(super) baseline: Baseline,
    /// How often memory ran out and the recorder dumped itself.
    dumps: u64,
    /// When it may do so again, once there are as many as it keeps.
    pub(super) dump_pace: Pace,
    /// How often it was said who holds the memory.
    pub(super) told: Told,
    /// When a caught panic may have the recording written again.
    pub(super) panic_pace: Pace,
}

impl Session {
    fn new(options: Options, baseline: Baseline) -> Self {
        let (dump_pace, panic_pace) = (Pace::default(), Pace::default());
        Self { monitors: 1, options, baseline, dumps: 0, dump_pace, told: Told::default(), panic_pace }
    }
}

pub(super) static SESSION: ForkCell<Mutex<Option<Session>>> = ForkCell::new(|| Mutex::new(inherited()));

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts recording, or joins the session that runs. Returns whether the caller is a monitor of it, to be ended by
/// [`stop`]; it is none when it asked for nothing and nothing runs.
///
/// # Errors
/// When the file to stream to cannot be created, or a dump's name says no format; nothing is recorded then.
pub fn start(options: &Options) -> io::Result<bool> {
    let _uncancelled = signals::Uncancelled::now();
    let _inside = reentry::enter();
    // Whatever folder the program goes to later, as daemons do.
    let options = &options.clone().with_absolute_paths()?;
    let mut session = session();
    if let Some(running) = session.as_mut() {
        running.monitors += 1;
        let lost = options.lost_beside(&running.options, crate::host::is_installed());
        drop(session);
        if let Some(lost) = lost {
            static SAID: Once = Once::new();
            SAID.call_once(|| message::say(lost));
        }
        return Ok(true);
    }
    if options.enabled == Enabled::None {
        return Ok(false);
    }
    if let Some(path) = &options.dump_on_oom {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        naming(path, || (dumper().accepts)(path).map_err(refused))?;
    }
    reserve::prepare();
    stack::capture::prepare();
    binaries::loaded();
    fork::watch();
    let recorder = RECORDER.get();
    recorder.clear();
    message::remember_destination();
    let (mut unwritten, mut unkept) = (None, None);
    if let Some(path) = &options.output {
        ending::write_when_the_program_ends();
        if options.stream {
            match naming(path, || Stream::create(path, options)) {
                Ok(stream) => {
                    recorder.open_stream(stream)?;
                    unkept = recorder.keep_up().err();
                }
                // Earlier runs must not keep the program from its work.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => unwritten = Some(error),
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
    crate::host::high::begins_with(&baseline.sums[0]);
    #[cfg(feature = "cuda")]
    recorder.readings.begin(&baseline.sums);
    *session = Some(Session::new(options.clone(), baseline));
    let host = if options.wants_host_heap() { switch::HOST } else { 0 };
    let operators = if options.wants_operators() { switch::OPERATORS } else { 0 };
    switch::set(switch::EVENTS | switch::SCOPES | host | operators, true);
    drop(session);
    if let Some(error) = unwritten {
        message::say(format_args!("this run is recorded in memory only: {error}"));
    }
    if let Some(error) = unkept {
        message::say(format_args!("no thread for the stream, so chunks are written only when full: {error}"));
    }
    recorder.tell_news();
    Ok(true)
}

/// Ends one monitor. The last one ends the session and writes its recording.
///
/// Returns what was recorded so far; nothing when nothing ran.
pub fn stop() -> (Snapshot, io::Result<()>) {
    let _uncancelled = signals::Uncancelled::now();
    ask_driver();
    let _inside = reentry::enter();
    let mut session = session();
    let Some(running) = session.as_mut() else { return (Snapshot::default(), Ok(())) };
    running.monitors -= 1;
    if running.monitors > 0 {
        return (RECORDER.get().snapshot(&running.options, &running.baseline, false), Ok(()));
    }
    end_recording();
    publish(None);
    let Session { options, baseline, told, .. } = session.take().expect("checked above");
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
    tell_left_out();
    told.tell_left_out();
    (snapshot, written)
}

/// Whether there is memory for a snapshot, as far as one can know. Asked only where it has run out before: the program
/// lives on without the recording then.
pub(super) fn has_memory() -> io::Result<()> {
    // Its tables, what is written of them, and room to move.
    let wanted_bytes = || 3 * usize::try_from(crate::host::own_bytes()).unwrap_or(0) + (32 << 20);
    if !reserve::ran_out() || reserve::can_take(wanted_bytes()) {
        return Ok(());
    }
    let why = "memory ran out while it was made, and there is not enough to write it";
    Err(io::Error::new(io::ErrorKind::OutOfMemory, why))
}

/// Tells of forked processes that left no file, of devices that are in no recording, and of a recording that ended before the
/// program. The caller holds no lock.
pub(super) fn tell_left_out() {
    if reserve::ran_out() {
        message::say("memory ran out while recording: what happened after that is not in the recording");
    }
    [RECORDER.get().devices_left_out(), left_out()].into_iter().flatten().for_each(message::say);
}

/// Switches everything off and lets the hooks end that are under way, so that what is collected next is of one moment: a
/// stream must not hold an event that is younger than its list of live blocks.
pub(super) fn end_recording() {
    switch::set(switch::EVENTS | scope::scopes_of_monitoring() | switch::HOST | switch::OPERATORS, false);
    barrier::wait_for_hooks();
}

/// What the CUDA driver says goes into the snapshot that comes next, if this thread has a context. Before any lock.
fn ask_driver() {
    #[cfg(feature = "cuda")]
    super::driver_readings::ask();
}

/// What was recorded so far; `None` when nothing runs.
pub fn snapshot() -> Option<Snapshot> {
    let _uncancelled = signals::Uncancelled::now();
    ask_driver();
    let _inside = reentry::enter();
    let session = session();
    let running = session.as_ref().filter(|_| has_memory().is_ok())?;
    Some(RECORDER.get().snapshot(&running.options, &running.baseline, false))
}

/// What was recorded so far, and the file that it is to be dumped to because memory ran out; `None` when nothing runs, no
/// such file is wanted, or there are as `many` and the last is too new. The first dump stays, of the later ones the newest.
pub(super) fn dump_on_oom(many: u64) -> Option<(Snapshot, PathBuf)> {
    let _uncancelled = signals::Uncancelled::now();
    let mut session = session();
    let running = session.as_mut()?;
    let may_dump = running.dumps < many || running.dump_pace.is_due();
    let path = running.options.dump_on_oom.as_ref().filter(|_| may_dump && may_leave_a_file())?;
    let path = dump_path(path, running.dumps, many);
    running.dumps += 1;
    Some((RECORDER.get().snapshot(&running.options, &running.baseline, false), path))
}

/// Where a dump goes before which there were `earlier`, when `many` are kept.
fn dump_path(path: &Path, earlier: u64, many: u64) -> PathBuf {
    match earlier {
        0 => path.to_owned(),
        count => tagged(path, &((count - 1) % (many - 1) + 1).to_string()),
    }
}

/// A dump was made, and took so long.
pub(super) fn dumped_on_oom(cost: Duration) {
    if let Some(running) = session().as_mut() {
        running.dump_pace.done(cost);
    }
}

/// The sums of each device slot when the session began; of now when none runs.
pub fn sums_at_start() -> Vec<Sums> {
    session().as_ref().map_or_else(|| Baseline::now().sums, |running| running.baseline.sums).to_vec()
}

/// Writes the recording to where the options say, and ends the stream if it is one. An error names the file.
pub(super) fn write(recorder: &Recorder, options: &Options, snapshot: &Snapshot) -> io::Result<()> {
    let Some(path) = &options.output else { return Ok(()) };
    naming(path, || write_to(path, recorder, options, snapshot))
}

/// Does something with a file; an error has the file's name before it.
pub fn naming<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    signals::without_write_signals(act)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn write_to(path: &Path, recorder: &Recorder, options: &Options, snapshot: &Snapshot) -> io::Result<()> {
    if !options.stream {
        // A forked child in which nothing happened leaves no file.
        let nothing = snapshot.events.is_empty() && snapshot.devices.is_empty();
        let leaves_none = nothing && fork::generation() > 0 || !may_leave_a_file();
        return if leaves_none { Ok(()) } else { save(snapshot, path) };
    }
    match recorder.close_stream()? {
        Some(stream) if options.is_of_run && snapshot.events.is_empty() && snapshot.devices.is_empty() => {
            stream.discard()
        }
        Some(stream) => stream.finish(recorder, snapshot),
        None => Ok(()),
    }
}

/// Writes a snapshot of the recorder's as a `.memtrack` file, whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn save(snapshot: &Snapshot, path: &Path) -> io::Result<()> {
    let mut file = ReplacingFile::create(path)?;
    memtrack_file::write(snapshot, &mut file)?;
    file.commit()
}

/// Who writes the files of dumps, which may have formats that the recorder does not know.
#[derive(Clone, Copy, Debug)]
pub struct Dumper {
    /// Says why a file of that name cannot be written.
    pub accepts: fn(&Path) -> Result<(), String>,
    /// Writes a snapshot to a file, whole or not at all.
    pub write: fn(&Snapshot, &Path) -> io::Result<()>,
}

static DUMPER: OnceLock<Dumper> = OnceLock::new();

/// Has dumps written by `dumper`; the first one that is named stays. Without one, files are `.memtrack` files.
pub fn dumps_by(dumper: Dumper) {
    // Which one it was does not matter: they know the same formats.
    let _ = DUMPER.set(dumper);
}

/// Who writes the files of dumps.
pub fn dumper() -> Dumper {
    let accepts = |path: &Path| match path.extension() {
        Some(suffix) if suffix.eq_ignore_ascii_case("memtrack") => Ok(()),
        _ => Err("the name must end in .memtrack (the feature `formats` knows others)".to_owned()),
    };
    DUMPER.get().copied().unwrap_or(Dumper { accepts, write: save })
}

impl Recorder {
    /// Forgets events, blocks and segments. Stacks and scopes keep their ids.
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
        crate::host::forget_samples();
    }
}

fn inherited() -> Option<Session> {
    let options = inherited_options()?;
    let sums = [Sums::default(); DEVICE_SLOTS];
    Some(Session::new(options, Baseline { clock: clock::first_reading(), sums }))
}

/// Whether this is the child of a fork that goes on with its parent's session into a stream of its own.
pub(super) fn is_streaming_child() -> bool {
    inherited_options().is_some_and(|options| options.stream && options.output.is_some())
}

/// The stream that a forked child's fresh recorder writes to, or why there is none.
pub(super) fn stream_after_fork() -> Option<io::Result<Stream>> {
    let options = inherited_options().filter(|options| options.stream)?;
    let path = options.output.as_ref().filter(|_| may_leave_a_file())?;
    Some(naming(path, || Stream::create(path, &options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_dumps_the_first_and_the_newest_stay() {
        let names: Vec<String> = (0..12)
            .map(|earlier| dump_path(Path::new("a.pickle.gz"), earlier, 4).to_string_lossy().into_owned())
            .collect();
        assert_eq!(names[0], "a.pickle.gz");
        let numbers = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2].map(|number| format!("a.{number}.pickle.gz"));
        assert_eq!(names[1..], numbers);
    }
}
