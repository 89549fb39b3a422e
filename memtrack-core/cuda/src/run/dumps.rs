//! The snapshots that `memtrack run --snapshot-on` requests: `FILE.N.pickle` when memory runs out, at the end, or
//! when the program receives `SIGUSR2`. `kept` decides which of them are kept.

use super::kept::{KeptSnapshots, MAX_SNAPSHOTS};
use memtrack_formats::SnapshotFiles;
use memtrack_model::snapshot::ReadingMoment;
use memtrack_recorder::recorder::{
    ForkCell, OutOfMemory, Pace, attach_out_of_memory_observer, exit, generation, may_write_file, session,
};
use memtrack_recorder::signals::without_write_signals;
use memtrack_recorder::{message, reentry, switch};
use memtrack_report::analysis::moment::Moment;
use memtrack_report::analysis::summary::memory_in_use_text;
use memtrack_report::analysis::top::{By, TopOptions, top_with};
use memtrack_symbols::Symbolizer;
use std::cell::UnsafeCell;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The number of rows printed when memory runs out.
const TOP_ROWS: usize = 10;

static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
static AT_EXIT: AtomicBool = AtomicBool::new(false);
static ON_OOM: AtomicBool = AtomicBool::new(false);
/// The snapshots so far. The lock is held while a snapshot is written, so they are written one at a time.
static DUMPS: ForkCell<Mutex<Dumps>> = ForkCell::new(Mutex::default);

/// The snapshots that this process wrote.
#[derive(Default)]
struct Dumps {
    /// The number of snapshots, which is also the number of the newest one.
    count: u32,
    /// The number of snapshots that were attempted because memory ran out.
    tried_at_oom: usize,
    /// The snapshots that were written because memory ran out.
    at_oom: KeptSnapshots,
    /// The snapshots that the signal requested.
    on_signal: KeptSnapshots,
    /// The number of times that memory ran out without a snapshot since the last snapshot for that reason.
    skipped: u64,
    pace: Pace,
}

impl Dumps {
    /// Returns whether a snapshot may be written now that memory ran out; if not, counts it as skipped. The first
    /// [`MAX_SNAPSHOTS`] are written without delay; later ones may take a fiftieth of the time.
    fn may_write_at_oom(&mut self) -> bool {
        let may = self.tried_at_oom < MAX_SNAPSHOTS || self.pace.is_due();
        self.tried_at_oom += usize::from(may);
        self.skipped += u64::from(!may);
        may
    }

    /// Returns the kept snapshots for a reason; `None` at the end of the program, which happens only once.
    fn kept(&mut self, reason: DumpReason) -> Option<&mut KeptSnapshots> {
        match reason {
            DumpReason::OutOfMemory => Some(&mut self.at_oom),
            DumpReason::Signalled => Some(&mut self.on_signal),
            DumpReason::AtTheEnd => None,
        }
    }
}

fn lock_dumps() -> MutexGuard<'static, Dumps> {
    DUMPS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The id of the process whose thread the signal handler wakes.
static SIGNAL_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Prepares for the requested snapshots.
pub(super) fn begin(output: &Path, occasions: &str) {
    let wants = |occasion: &str| occasions.split(',').any(|requested| requested == occasion);
    if OUTPUT.set(output.to_owned()).is_err() {
        return;
    }
    AT_EXIT.store(wants("exit"), Ordering::Relaxed);
    if wants("oom") {
        ON_OOM.store(true, Ordering::Relaxed);
        watch_memory();
    }
    if wants("signal")
        && let Err(error) = watch_signal()
    {
        message::print(format_args!("SIGUSR2 will make no snapshot: {error}"));
    }
    if AT_EXIT.load(Ordering::Relaxed) && !super::ends_with_library() {
        // Handlers run in reverse order: this handler runs before the session's, which ends the recording.
        // SAFETY: the handler is a plain function that stays loaded.
        unsafe { libc::atexit(exit_handler) };
    }
}

extern "C" fn exit_handler() {
    // A panic must not cross into C; its message has been printed by then.
    let _ = std::panic::catch_unwind(at_exit);
}

/// Handles the end of the program.
pub(super) fn at_exit() {
    // A forked child without events has nothing to write.
    let has_events = generation() == 0 || exit::is_recording();
    super::hook::stop_readings();
    if AT_EXIT.load(Ordering::Relaxed) && switch::is_on(switch::EVENTS) && has_events {
        write(DumpReason::AtTheEnd);
    }
    // A thread that is writing a snapshot continues; the exit does not wait for it.
    let skipped = DUMPS.get().try_lock().map_or(0, |mut dumps| std::mem::take(&mut dumps.skipped));
    if skipped > 0 {
        let times = if skipped == 1 { "once".to_owned() } else { format!("{skipped} times") };
        message::print(format_args!(
            "memory ran out {times} more, for which there is no snapshot: after the first {MAX_SNAPSHOTS} they may take a \
             fiftieth of the time"
        ));
    }
}

fn watch_memory() {
    attach_out_of_memory_observer(|oom| {
        let _inside = reentry::enter();
        if !lock_dumps().may_write_at_oom() {
            return;
        }
        let begin = Instant::now();
        print_largest(oom);
        write(DumpReason::OutOfMemory);
        lock_dumps().pace.done(begin.elapsed());
    });
}

/// Prints the blocks that were live when memory ran out, largest first.
fn print_largest(oom: &OutOfMemory) {
    let Some(snapshot) = session::snapshot() else { return };
    // The out-of-memory event is the newest one, unless the ring keeps no events.
    let at = Moment::last_oom(&snapshot, oom.device).unwrap_or(Moment::End);
    let options = TopOptions::new().limit(TOP_ROWS).at(at);
    let mut symbols = Symbolizer::of(&snapshot);
    let by = By::default_for(&snapshot, &mut symbols, &options);
    let report = top_with(&snapshot, &mut symbols, by, oom.device, &options);
    let reading = snapshot
        .driver
        .iter()
        .find(|reading| reading.device == oom.device && reading.moment == ReadingMoment::OutOfMemory);
    let device_parts =
        reading.map(|reading| format!("\n{}", memory_in_use_text(reading))).unwrap_or_default();
    message::print(format_args!("{oom}{device_parts}\n{report}"));
}

/// The reason why a snapshot is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DumpReason {
    OutOfMemory,
    AtTheEnd,
    Signalled,
}

impl DumpReason {
    const fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::AtTheEnd => "at the end",
            Self::Signalled => "SIGUSR2",
        }
    }
}

/// Returns the file of the snapshot with that number.
fn path_of(output: &Path, number: u32) -> PathBuf {
    let mut path: OsString = output.into();
    if generation() > 0 {
        path.push(format!(".{}", std::process::id()));
    }
    path.push(format!(".{number}.pickle"));
    path.into()
}

/// Writes the next snapshot.
fn write(reason: DumpReason) {
    let _inside = reentry::enter();
    if !may_write_file() {
        return;
    }
    let mut dumps = lock_dumps();
    let (Some(output), Some(snapshot)) = (OUTPUT.get(), session::snapshot()) else { return };
    dumps.count += 1;
    let number = dumps.count;
    let path = path_of(output, number);
    let save = || snapshot.save_as(&path, &mut Symbolizer::of(&snapshot));
    let saved = without_write_signals(save);
    let mut notes = String::new();
    if reason == DumpReason::OutOfMemory {
        notes = skipped_note(&mut dumps);
    }
    if let Some(kept) = dumps.kept(reason).filter(|_| saved.is_ok()) {
        notes += &kept.add(number, path.clone()).unwrap_or_default();
    }
    drop(dumps);
    let reason = reason.name();
    match saved {
        Ok(()) => message::print(format_args!("{reason}: wrote {}{notes}", path.display())),
        Err(error) => {
            message::print(format_args!("{reason}: cannot write {}: {error}{notes}", path.display()))
        }
    }
}

/// Returns a note about the skipped snapshots and resets their number, so that it is printed once.
fn skipped_note(dumps: &mut Dumps) -> String {
    match std::mem::take(&mut dumps.skipped) {
        0 => String::new(),
        1 => "; once before there was no time for one".to_owned(),
        times => format!("; {times} times before there was no time for one"),
    }
}

/// A semaphore with which the signal handler wakes the thread that writes. A pipe would not do: the program could close
/// its descriptor and reuse the number for a file.
struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: several threads may use a semaphore at once; it is initialized before other threads use it.
unsafe impl Sync for Semaphore {}

static SIGNALLED: Semaphore = Semaphore(UnsafeCell::new(MaybeUninit::zeroed()));

impl Semaphore {
    fn get(&self) -> *mut libc::sem_t {
        self.0.get().cast()
    }

    /// Initializes the semaphore.
    fn init(&self) -> std::io::Result<()> {
        // SAFETY: called once, before the handler and the waiting thread exist.
        match unsafe { libc::sem_init(self.get(), 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Wakes the waiting thread. May be called in a signal handler.
    fn post(&self) {
        // SAFETY: `init` was called.
        unsafe { libc::sem_post(self.get()) };
    }

    /// Waits until the semaphore is posted; several posts meanwhile count as one.
    fn wait(&self) {
        // SAFETY: `init` was called.
        unsafe {
            while libc::sem_wait(self.get()) != 0 {}
            while libc::sem_trywait(self.get()) == 0 {}
        }
    }
}

/// Installs a handler for `SIGUSR2`, unless the program has one. The handler wakes a thread, which writes a snapshot.
fn watch_signal() -> std::io::Result<()> {
    // SAFETY: the action is a local variable, which the call fills.
    let is_default = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut before);
        before.sa_sigaction == libc::SIG_DFL
    };
    if !is_default {
        return Err(std::io::Error::other("the program handles it itself"));
    }
    SIGNALLED.init()?;
    let write_when_signalled = || {
        let _inside = reentry::enter();
        loop {
            // A signal that arrives while a snapshot is written requests another one.
            SIGNALLED.wait();
            write(DumpReason::Signalled);
        }
    };
    std::thread::Builder::new().name("memtrack-signal".to_owned()).spawn(write_when_signalled)?;
    SIGNAL_PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the action is complete, and the handler calls only functions that a handler may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    Ok(())
}

extern "C" fn handler(_signal: i32) {
    // SAFETY: `getpid` and `sem_post` may be called in a handler, and `errno` is restored. A forked child has its
    // parent's handler, but no waiting thread.
    unsafe {
        if libc::getpid() as u32 == SIGNAL_PROCESS.load(Ordering::Relaxed) {
            let before = *libc::__errno_location();
            SIGNALLED.post();
            *libc::__errno_location() = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_beyond_the_limit_are_delayed_and_counted() {
        let mut dumps = Dumps::default();
        for _ in 0..MAX_SNAPSHOTS {
            assert!(dumps.may_write_at_oom());
            dumps.pace.done(std::time::Duration::from_secs(10));
        }
        assert!(!dumps.may_write_at_oom() && !dumps.may_write_at_oom());
        assert_eq!(skipped_note(&mut dumps), "; 2 times before there was no time for one");
        assert_eq!(skipped_note(&mut dumps), "");
    }
}
