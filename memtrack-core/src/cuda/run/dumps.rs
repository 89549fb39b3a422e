//! The snapshots that `memtrack run --snapshot-on` asks for: `FILE.N.pickle` when memory runs out, at the end, or when
//! the program is sent `SIGUSR2`.

use crate::analysis::moment::Moment;
use crate::analysis::summary::parts;
use crate::analysis::top::{By, TopOptions, top_with};
use crate::recorder::{ForkCell, OutOfMemory, attach_out_of_memory_observer, ending, generation, session};
use crate::signals::without_write_signals;
use crate::snapshot::ReadingMoment;
use crate::stack::symbols::Symbolizer;
use crate::{message, reentry, switch};
use std::cell::UnsafeCell;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Rows of what is printed when memory runs out.
const ROWS: usize = 10;

static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
static AT_EXIT: AtomicBool = AtomicBool::new(false);
static ON_OOM: AtomicBool = AtomicBool::new(false);
/// Snapshots so far; one at a time is written.
static COUNT: ForkCell<Mutex<u32>> = ForkCell::new(Mutex::default);

/// The process whose thread the signal's handler wakes.
static SIGNALLED_OF: AtomicU32 = AtomicU32::new(0);

/// Prepares for what is asked.
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
        message::say(format_args!("SIGUSR2 will make no snapshot: {error}"));
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

/// The program ends.
pub(super) fn at_exit() {
    // A forked child in which nothing happened has nothing to show.
    let happened = generation() == 0 || ending::is_recording();
    super::hook::no_more();
    if AT_EXIT.load(Ordering::Relaxed) && switch::is_on(switch::EVENTS) && happened {
        write("at the end");
    }
}

fn watch_memory() {
    attach_out_of_memory_observer(|oom| {
        let _inside = reentry::enter();
        print_largest(oom);
        write("out of memory");
    });
}

/// Prints what is live where memory ran out, largest first.
fn print_largest(oom: &OutOfMemory) {
    let Some(snapshot) = session::snapshot() else { return };
    // The event is the newest, unless the ring was told to keep none.
    let at = Moment::last_oom(&snapshot, oom.device).unwrap_or(Moment::End);
    let options = TopOptions { limit: ROWS, at: Some(at), ..TopOptions::default() };
    let by = By::suited_to(&snapshot);
    let report = top_with(&snapshot, &mut Symbolizer::of(&snapshot), by, oom.device, &options);
    let reading = snapshot
        .driver
        .iter()
        .find(|reading| reading.device == oom.device && reading.moment == ReadingMoment::OutOfMemory);
    let whose = reading.map(|reading| format!("\n{}", parts(reading))).unwrap_or_default();
    message::say(format_args!("{oom}{whose}\n{report}"));
}

/// Writes the next snapshot.
fn write(why: &str) {
    let _inside = reentry::enter();
    let mut count = COUNT.get().lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(output), Some(snapshot)) = (OUTPUT.get(), session::snapshot()) else { return };
    *count += 1;
    let mut path: OsString = output.into();
    if generation() > 0 {
        path.push(format!(".{}", std::process::id()));
    }
    path.push(format!(".{count}.pickle"));
    let path = PathBuf::from(path);
    let save = || snapshot.save_as(&path, &mut Symbolizer::of(&snapshot));
    let written = without_write_signals(save);
    drop(count);
    match written {
        Ok(()) => message::say(format_args!("{why}: wrote {}", path.display())),
        Err(error) => message::say(format_args!("{why}: cannot write {}: {error}", path.display())),
    }
}

/// What the signal's handler wakes the thread with. No descriptor, which the program could close and be given for a file
/// of its own.
struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: semaphores are made to be used by several threads at once; it is initialised before there are others that know.
unsafe impl Sync for Semaphore {}

static SIGNALLED: Semaphore = Semaphore(UnsafeCell::new(MaybeUninit::zeroed()));

impl Semaphore {
    fn get(&self) -> *mut libc::sem_t {
        self.0.get().cast()
    }

    /// Makes it usable.
    fn begin(&self) -> std::io::Result<()> {
        // SAFETY: called once, before the handler and the thread that waits exist.
        match unsafe { libc::sem_init(self.get(), 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Wakes who waits. May be called in a signal's handler.
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

/// Has `SIGUSR2` write a snapshot, unless the program handles it. The handler wakes a thread, which does the rest.
fn watch_signal() -> std::io::Result<()> {
    // SAFETY: the action is ours and filled by the call.
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
            // What comes while a snapshot is written is one more.
            SIGNALLED.wait();
            write("SIGUSR2");
        }
    };
    std::thread::Builder::new().name("memtrack-signal".to_owned()).spawn(write_when_signalled)?;
    SIGNALLED_OF.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the action is whole, and the handler does what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    Ok(())
}

extern "C" fn handler(_signal: i32) {
    // SAFETY: `getpid` and `sem_post` may be called in a handler, and `errno` is put back. A forked child has its parent's
    // handler, and no thread that waits.
    unsafe {
        if libc::getpid() as u32 == SIGNALLED_OF.load(Ordering::Relaxed) {
            let before = *libc::__errno_location();
            SIGNALLED.post();
            *libc::__errno_location() = before;
        }
    }
}

/// In the child of a fork: the count begins anew, and the observers were left behind.
pub(super) fn reset_after_fork() {
    COUNT.forget();
}
