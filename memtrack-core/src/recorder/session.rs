//! The running session: from the first `start` to the matching `stop`, whoever calls them. Monitors that overlap share
//! one session; the first one's options hold.

use super::collect::Baseline;
use super::fork::ForkCell;
use super::inherit::{inherited_options, publish};
use super::stream::Stream;
use super::threads::DEVICE_SLOTS;
use super::totals::Sums;
use super::{
    Enabled, Options, RECORDER, Recorder, barrier, binaries, clock, ending, fork, keeper, ring, scope_sums,
    settings,
};
use crate::snapshot::Snapshot;
use crate::snapshot::pytorch::{format_of, tagged};
use crate::{reentry, stack, switch};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A session that runs.
pub(super) struct Session {
    monitors: u32,
    pub(super) options: Options,
    pub(super) baseline: Baseline,
    /// How often memory ran out and the recorder dumped itself.
    dumps: u32,
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
pub(crate) fn start(options: &Options) -> io::Result<bool> {
    // Under `memtrack run` its session is the first.
    #[cfg(feature = "cuda")]
    crate::cuda::run::begin_if_asked();
    let _inside = reentry::enter();
    let mut session = session();
    if let Some(running) = session.as_mut() {
        running.monitors += 1;
        if let Some(lost) = options.lost_beside(&running.options) {
            static SAID: Once = Once::new();
            SAID.call_once(|| eprintln!("memtrack: {lost}"));
        }
        return Ok(true);
    }
    if options.enabled == Enabled::None {
        return Ok(false);
    }
    if let Some(path) = &options.dump_on_oom {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        naming(path, || format_of(path).map_err(refused))?;
    }
    stack::capture::prepare();
    binaries::loaded();
    fork::watch();
    let recorder = RECORDER.get();
    recorder.clear();
    if let Some(path) = &options.output {
        ending::write_when_the_program_ends();
        if options.stream {
            recorder.store().stream = Some(naming(path, || Stream::create(path, options))?);
            keeper::keep_up(recorder);
        }
    }
    scope_sums::begin();
    clock::first_reading();
    settings::apply(options, clock::ticks());
    publish(Some(options));
    let baseline = Baseline::now();
    #[cfg(feature = "cuda")]
    recorder.readings.begin(&baseline.sums);
    *session = Some(Session { monitors: 1, options: options.clone(), baseline, dumps: 0 });
    let host = if options.wants_host_heap() { switch::HOST } else { 0 };
    switch::set(switch::EVENTS | switch::SCOPES | host, true);
    Ok(true)
}

/// Ends one monitor. The last one ends the session and writes its recording.
///
/// Returns what was recorded so far; nothing when nothing ran.
pub(crate) fn stop() -> (Snapshot, io::Result<()>) {
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
    let Session { options, baseline, .. } = session.take().expect("checked above");
    let recorder = RECORDER.get();
    let snapshot = recorder.snapshot(&options, &baseline, true);
    let written = write(recorder, &options, &snapshot, true);
    recorder.clear();
    (snapshot, written)
}

/// Switches everything off and lets the hooks end that are under way, so that what is collected next is of one moment: a
/// stream must not hold an event that is younger than its list of live blocks.
pub(super) fn end_recording() {
    switch::set(switch::EVENTS | switch::SCOPES | switch::HOST, false);
    barrier::wait_for_hooks();
}

/// What the CUDA driver says goes into the snapshot that comes next, if this thread has a context. Before any lock.
fn ask_driver() {
    #[cfg(feature = "cuda")]
    crate::cuda::ask_driver();
}

/// What was recorded so far; `None` when nothing runs.
pub(crate) fn snapshot() -> Option<Snapshot> {
    ask_driver();
    let _inside = reentry::enter();
    session().as_ref().map(|running| RECORDER.get().snapshot(&running.options, &running.baseline, false))
}

/// What was recorded so far, and the file that it is to be dumped to because memory ran out; `None` when nothing runs,
/// no such file is wanted, or enough were written.
pub(super) fn dump_on_oom(most: u32) -> Option<(Snapshot, PathBuf)> {
    let mut session = session();
    let running = session.as_mut()?;
    let path = running.options.dump_on_oom.as_ref().filter(|_| running.dumps < most)?;
    let path = match running.dumps {
        0 => path.clone(),
        count => tagged(path, &count.to_string()),
    };
    running.dumps += 1;
    Some((RECORDER.get().snapshot(&running.options, &running.baseline, false), path))
}

/// The sums of each device slot when the session began; of now when none runs.
pub(crate) fn sums_at_start() -> Vec<Sums> {
    session().as_ref().map_or_else(|| Baseline::now().sums, |running| running.baseline.sums).to_vec()
}

/// Writes the recording to where the options say. An error names the file.
pub(super) fn write(
    recorder: &Recorder,
    options: &Options,
    snapshot: &Snapshot,
    last: bool,
) -> io::Result<()> {
    let Some(path) = &options.output else { return Ok(()) };
    naming(path, || write_to(path, recorder, options, snapshot, last))
}

/// Does something with a file; an error has the file's name before it.
pub(crate) fn naming<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    act().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn write_to(
    path: &Path,
    recorder: &Recorder,
    options: &Options,
    snapshot: &Snapshot,
    last: bool,
) -> io::Result<()> {
    if !options.stream {
        // A forked child in which nothing happened leaves no file.
        let nothing = snapshot.events.is_empty() && snapshot.devices.is_empty();
        return if nothing && fork::generation() > 0 { Ok(()) } else { snapshot.save(path) };
    }
    recorder.stream_parts();
    if !last {
        return Ok(());
    }
    match recorder.store().stream.take() {
        Some(stream) if options.is_of_run && snapshot.events.is_empty() && snapshot.devices.is_empty() => {
            stream.discard()
        }
        Some(stream) => stream.finish(snapshot),
        None => Ok(()),
    }
}

impl Recorder {
    /// Forgets events, blocks and segments. Stacks and scopes keep their ids.
    fn clear(&self) {
        self.live.clear();
        self.segments.clear();
        #[cfg(feature = "cuda")]
        self.driver.clear();
        let mut store = self.store();
        store.rings.iter_mut().for_each(ring::Ring::clear);
        store.stream = None;
        crate::host::forget_samples();
    }
}

fn inherited() -> Option<Session> {
    let options = inherited_options()?;
    let sums = [Sums::default(); DEVICE_SLOTS];
    Some(Session {
        monitors: 1,
        options,
        baseline: Baseline { clock: clock::first_reading(), sums },
        dumps: 0,
    })
}

/// The stream a forked child's fresh recorder writes to.
pub(super) fn stream_after_fork() -> Option<Stream> {
    let options = inherited_options().filter(|options| options.stream)?;
    Stream::create(options.output.as_ref()?, &options).ok()
}

/// In the child of a fork: the session is rebuilt from the published options when it is next asked for.
pub(super) fn reset_after_fork() {
    SESSION.forget();
}
