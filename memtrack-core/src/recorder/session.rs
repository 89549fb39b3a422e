//! The running session: from the first `start` to the matching `stop`, whoever calls them. Monitors that overlap share
//! one session; the first one's options hold. Also what writes the recording when the program ends early.

use super::collect::Baseline;
use super::fork::ForkCell;
use super::inherit::{inherited_options, publish};
use super::stream::{self, Stream};
use super::threads::DEVICE_SLOTS;
use super::totals::Sums;
use super::{Enabled, Options, RECORDER, Recorder, barrier, binaries, clock, fork, ring, settings};
use crate::snapshot::Snapshot;
use crate::snapshot::pytorch::{format_of, tagged};
use crate::{reentry, stack, switch};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

struct Session {
    monitors: u32,
    options: Options,
    baseline: Baseline,
    /// How often memory ran out and the recorder dumped itself.
    dumps: u32,
}

static SESSION: ForkCell<Mutex<Option<Session>>> = ForkCell::new(|| Mutex::new(inherited()));

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts recording, or joins the session that runs. Returns whether the caller is a monitor of it, to be ended by
/// [`stop`]; it is none when it asked for nothing and nothing runs.
///
/// # Errors
/// When the file to stream to cannot be created, or a dump's name says no format; nothing is recorded then.
pub(crate) fn start(options: &Options) -> io::Result<bool> {
    let _inside = reentry::enter();
    let mut session = session();
    if let Some(running) = session.as_mut() {
        running.monitors += 1;
        if *options != running.options && *options != Options::default() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                eprintln!("memtrack: monitoring runs already; the options of the first monitor hold")
            });
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
        write_when_the_program_ends();
        if options.stream {
            recorder.store().stream = Some(naming(path, || Stream::create(path, options))?);
            stream::keep_up(recorder);
        }
    }
    clock::first_reading();
    settings::apply(options, clock::ticks());
    publish(Some(options));
    *session = Some(Session { monitors: 1, options: options.clone(), baseline: Baseline::now(), dumps: 0 });
    let host = if options.wants_host_heap() { switch::HOST } else { 0 };
    switch::set(switch::EVENTS | switch::SCOPES | host, true);
    Ok(true)
}

/// Ends one monitor. The last one ends the session and writes its recording.
///
/// Returns what was recorded so far; nothing when nothing ran.
pub(crate) fn stop() -> (Snapshot, io::Result<()>) {
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
fn end_recording() {
    switch::set(switch::EVENTS | switch::SCOPES | switch::HOST, false);
    barrier::wait_for_hooks();
}

/// What was recorded so far; `None` when nothing runs.
pub(crate) fn snapshot() -> Option<Snapshot> {
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
fn write(recorder: &Recorder, options: &Options, snapshot: &Snapshot, last: bool) -> io::Result<()> {
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
        Some(stream) if options.drop_empty && snapshot.events.is_empty() && snapshot.devices.is_empty() => {
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

/// Has the recording written at exit and on a panic, from now on.
fn write_when_the_program_ends() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        #[cfg(unix)]
        if !ends_elsewhere() {
            at_exit::install();
        }
        if !std::thread::panicking() {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                {
                    // A backtrace takes a lot of memory that is not the program's.
                    let _inside = reentry::enter();
                    before(info);
                }
                write_so_far(false);
            }));
        }
    });
}

/// Whether something else calls [`write_at_exit`].
#[cfg(unix)]
fn ends_elsewhere() -> bool {
    #[cfg(feature = "cuda")]
    return crate::cuda::run::ends_with_library();
    #[cfg(not(feature = "cuda"))]
    false
}

/// Whether anything was recorded in this process: not in a fresh child of a fork.
#[cfg(feature = "cuda")]
pub(crate) fn is_recording() -> bool {
    RECORDER.is_made()
}

/// Ends the recording because the process exits, and writes it.
#[cfg(feature = "cuda")]
pub(crate) fn write_at_exit() {
    write_so_far(true);
}

/// Writes what there is. Skipped when the session is busy on this thread, or for long on another one: an early end must
/// not hang.
fn write_so_far(last: bool) {
    let patience = Duration::from_secs(if last && !reentry::is_inside() { 10 } else { 0 });
    let _inside = reentry::enter();
    if fork::generation() > 0 && !RECORDER.is_made() {
        // A forked child in which nothing happened leaves no file.
        return;
    }
    let Some(session) = session_within(patience) else { return };
    let Some(running) = session.as_ref().filter(|running| running.options.output.is_some()) else { return };
    if last {
        // Other threads may still run: what is written must be of one moment.
        end_recording();
    }
    let recorder = RECORDER.get();
    let snapshot = recorder.snapshot(&running.options, &running.baseline, false);
    if let Err(error) = write(recorder, &running.options, &snapshot, last) {
        eprintln!("memtrack: the recording could not be written: {error}");
    }
}

fn session_within(patience: Duration) -> Option<MutexGuard<'static, Option<Session>>> {
    let start = Instant::now();
    loop {
        match SESSION.get().try_lock() {
            Ok(session) => return Some(session),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return None,
            // Another thread is writing the recording: exiting now would cut it.
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(unix)]
mod at_exit {
    #![allow(unsafe_code)]

    /// Registers the handler with the C library: it runs when `main` returns and on `std::process::exit`.
    pub(super) fn install() {
        // SAFETY: the handler is a plain function that stays loaded and does not unwind (see below).
        unsafe { libc::atexit(handler) };
    }

    extern "C" fn handler() {
        // A panic must not cross into C; its message has been printed by then.
        let _ = std::panic::catch_unwind(|| super::write_so_far(true));
    }
}
