//! The snapshots that `memtrack run --snapshot-on` requests: `FILE.N.pickle` when memory runs out, at the end, or
//! when the program receives `SIGUSR2`. `kept` decides which of them stay.

use super::kept::{Kept, MOST};
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

/// The rows printed when memory runs out.
const ROWS: usize = 10;

static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
static AT_EXIT: AtomicBool = AtomicBool::new(false);
static ON_OOM: AtomicBool = AtomicBool::new(false);
/// The snapshots so far; they are written one at a time.
static WRITTEN: ForkCell<Mutex<Written>> = ForkCell::new(Mutex::default);

/// The snapshots that this process wrote.
#[derive(Default)]
struct Written {
    /// The number of all snapshots: the newest one's number.
    count: u32,
    /// The number of them that were attempted because memory ran out.
    tried_at_oom: usize,
    /// Those that were written then.
    at_oom: Kept,
    /// Those that the signal requested.
    on_signal: Kept,
    /// The number of times that memory ran out without a snapshot since the last one at out of memory.
    left_out: u64,
    pace: Pace,
}

impl Written {
    /// Returns whether one more may be written now that memory ran out; otherwise that is counted. As many as are kept may be
    /// written without delay, and later ones take a fiftieth of the time.
    fn may_at_oom(&mut self) -> bool {
        let may = self.tried_at_oom < MOST || self.pace.is_due();
        self.tried_at_oom += usize::from(may);
        self.left_out += u64::from(!may);
        may
    }

    /// Returns the snapshots of a kind with a limited number; the program ends only once.
    fn kept(&mut self, why: DumpReason) -> Option<&mut Kept> {
        match why {
            DumpReason::OutOfMemory => Some(&mut self.at_oom),
            DumpReason::Signalled => Some(&mut self.on_signal),
            DumpReason::AtTheEnd => None,
        }
    }
}

fn written() -> MutexGuard<'static, Written> {
    WRITTEN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process whose thread the signal handler wakes.
static SIGNALLED_OF: AtomicU32 = AtomicU32::new(0);

/// Prepares for the requested snapshots.
pub(super) fn begin(output: &Path, wanted: &str) {
    let wants = |what: &str| wanted.split(',').any(|one| one == what);
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
        // Handlers run in reverse: this one before the session's, which ends the recording.
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
    // A forked child without events has nothing to show.
    let happened = generation() == 0 || exit::is_recording();
    super::hook::no_more();
    if AT_EXIT.load(Ordering::Relaxed) && switch::is_on(switch::EVENTS) && happened {
        write(DumpReason::AtTheEnd);
    }
    // A thread that is writing one continues, and the end does not wait.
    let left_out = WRITTEN.get().try_lock().map_or(0, |mut written| std::mem::take(&mut written.left_out));
    if left_out > 0 {
        let times = if left_out == 1 { "once".to_owned() } else { format!("{left_out} times") };
        message::print(format_args!(
            "memory ran out {times} more, for which there is no snapshot: after the first {MOST} they may take a \
             fiftieth of the time"
        ));
    }
}

fn watch_memory() {
    attach_out_of_memory_observer(|oom| {
        let _inside = reentry::enter();
        if !written().may_at_oom() {
            return;
        }
        let begin = Instant::now();
        print_largest(oom);
        write(DumpReason::OutOfMemory);
        written().pace.done(begin.elapsed());
    });
}

/// Prints the blocks that were live when memory ran out, largest first.
fn print_largest(oom: &OutOfMemory) {
    let Some(snapshot) = session::snapshot() else { return };
    // The event is the newest, unless the ring keeps none.
    let at = Moment::last_oom(&snapshot, oom.device).unwrap_or(Moment::End);
    let options = TopOptions::new().limit(ROWS).at(at);
    let mut symbols = Symbolizer::of(&snapshot);
    let by = By::default_for(&snapshot, &mut symbols, &options);
    let report = top_with(&snapshot, &mut symbols, by, oom.device, &options);
    let reading = snapshot
        .driver
        .iter()
        .find(|reading| reading.device == oom.device && reading.moment == ReadingMoment::OutOfMemory);
    let whose = reading.map(|reading| format!("\n{}", memory_in_use_text(reading))).unwrap_or_default();
    message::print(format_args!("{oom}{whose}\n{report}"));
}

/// DumpReason a snapshot is written.
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
fn write(why: DumpReason) {
    let _inside = reentry::enter();
    if !may_write_file() {
        return;
    }
    let mut written = written();
    let (Some(output), Some(snapshot)) = (OUTPUT.get(), session::snapshot()) else { return };
    written.count += 1;
    let number = written.count;
    let path = path_of(output, number);
    let save = || snapshot.save_as(&path, &mut Symbolizer::of(&snapshot));
    let saved = without_write_signals(save);
    let mut more = String::new();
    if why == DumpReason::OutOfMemory {
        more = left_out(&mut written);
    }
    if let Some(kept) = written.kept(why).filter(|_| saved.is_ok()) {
        more += &kept.add(number, path.clone()).unwrap_or_default();
    }
    drop(written);
    let why = why.name();
    match saved {
        Ok(()) => message::print(format_args!("{why}: wrote {}{more}", path.display())),
        Err(error) => message::print(format_args!("{why}: cannot write {}: {error}{more}", path.display())),
    }
}

/// Returns the message about the times without a snapshot; it is printed once.
fn left_out(written: &mut Written) -> String {
    match std::mem::take(&mut written.left_out) {
        0 => String::new(),
        1 => "; once before there was no time for one".to_owned(),
        times => format!("; {times} times before there was no time for one"),
    }
}

/// A semaphore with which the signal handler wakes the thread. Not a descriptor, which the program could close and
/// receive again for a file of its own.
struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: semaphores are made to be used by several threads at once; it is initialised before other threads use it.
unsafe impl Sync for Semaphore {}

static SIGNALLED: Semaphore = Semaphore(UnsafeCell::new(MaybeUninit::zeroed()));

impl Semaphore {
    fn get(&self) -> *mut libc::sem_t {
        self.0.get().cast()
    }

    /// Initialises it.
    fn begin(&self) -> std::io::Result<()> {
        // SAFETY: called once, before the handler and the thread that waits exist.
        match unsafe { libc::sem_init(self.get(), 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Wakes the waiting thread. May be called in a signal handler.
    fn post(&self) {
        // SAFETY: `begin` was called.
        unsafe { libc::sem_post(self.get()) };
    }

    /// Waits until it was posted; several posts meanwhile count as one.
    fn wait(&self) {
        // SAFETY: `begin` was called.
        unsafe {
            while libc::sem_wait(self.get()) != 0 {}
            while libc::sem_trywait(self.get()) == 0 {}
        }
    }
}

/// Makes `SIGUSR2` write a snapshot, unless the program handles it. The handler wakes a thread, which does the rest.
fn watch_signal() -> std::io::Result<()> {
    // SAFETY: the action is a local variable and filled by the call.
    let is_free = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut before);
        before.sa_sigaction == libc::SIG_DFL
    };
    if !is_free {
        return Err(std::io::Error::other("the program handles it itself"));
    }
    SIGNALLED.begin()?;
    let write_when_signalled = || {
        let _inside = reentry::enter();
        loop {
            // A signal that arrives while a snapshot is written counts as one more.
            SIGNALLED.wait();
            write(DumpReason::Signalled);
        }
    };
    std::thread::Builder::new().name("memtrack-signal".to_owned()).spawn(write_when_signalled)?;
    SIGNALLED_OF.store(std::process::id(), Ordering::Relaxed);
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
    // parent's handler, and no thread that waits.
    unsafe {
        if libc::getpid() as u32 == SIGNALLED_OF.load(Ordering::Relaxed) {
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
    fn snapshots_beyond_the_limit_wait_and_are_counted() {
        let mut written = Written::default();
        for _ in 0..MOST {
            assert!(written.may_at_oom());
            written.pace.done(std::time::Duration::from_secs(10));
        }
        assert!(!written.may_at_oom() && !written.may_at_oom());
        assert_eq!(left_out(&mut written), "; 2 times before there was no time for one");
        assert_eq!(left_out(&mut written), "");
    }
}
