//! The snapshots that `memtrack run --snapshot-on` asks for: `FILE.N.pickle` when memory runs out, at the end, or when
//! the program is sent `SIGUSR2`.

use super::say::say;
use crate::analysis::moment::Moment;
use crate::analysis::summary::parts;
use crate::analysis::top::{By, TopOptions, top_with};
use crate::recorder::{ForkCell, OutOfMemory, attach_out_of_memory_observer, ending, generation, session};
use crate::snapshot::ReadingMoment;
use crate::stack::symbols::Symbolizer;
use crate::{reentry, switch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Rows of what is printed when memory runs out.
const ROWS: usize = 10;

static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
static AT_EXIT: AtomicBool = AtomicBool::new(false);
static ON_OOM: AtomicBool = AtomicBool::new(false);
/// Snapshots so far; one at a time is written.
static COUNT: ForkCell<Mutex<u32>> = ForkCell::new(Mutex::default);

/// What the signal's handler posts, and in which process.
static ASKED: AtomicPtr<libc::sem_t> = AtomicPtr::new(std::ptr::null_mut());
static ASKED_OF: AtomicU32 = AtomicU32::new(0);

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
        say(&format!("SIGUSR2 will make no snapshot: {error}"));
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
    say(&format!("{oom}{whose}\n{report}"));
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
    let written = snapshot.save_as(&path, &mut Symbolizer::of(&snapshot));
    match written {
        Ok(()) => say(&format!("{why}: wrote {}", path.display())),
        Err(error) => say(&format!("{why}: cannot write {}: {error}", path.display())),
    }
}

/// Has `SIGUSR2` write a snapshot, unless the program handles it. The handler wakes a thread that does the rest; by a
/// semaphore, since a descriptor could be closed by the program and be a file of its own by then.
fn watch_signal() -> std::io::Result<()> {
    // SAFETY: the semaphore is ours and stays; the actions are whole and the handler does what a handler may.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), &mut before);
        if before.sa_sigaction != libc::SIG_DFL {
            return Err(std::io::Error::other("the program handles it itself"));
        }
        let asked: *mut libc::sem_t = Box::into_raw(Box::new(std::mem::zeroed()));
        if libc::sem_init(asked, 0, 0) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        ASKED_OF.store(std::process::id(), Ordering::Relaxed);
        ASKED.store(asked, Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    let wait = || {
        let _inside = reentry::enter();
        let asked = ASKED.load(Ordering::Acquire);
        loop {
            // SAFETY: the semaphore above, which stays; whatever else was asked while a snapshot was written is one more.
            unsafe {
                if libc::sem_wait(asked) != 0 {
                    continue;
                }
                while libc::sem_trywait(asked) == 0 {}
            }
            write("SIGUSR2");
        }
    };
    std::thread::Builder::new().name("memtrack-signal".to_owned()).spawn(wait).map(drop)
}

extern "C" fn handler(_signal: i32) {
    // SAFETY: `sem_post` and `getpid` may be called in a handler, and `errno` is put back. A forked child has no thread
    // that waits.
    unsafe {
        if libc::getpid() as u32 == ASKED_OF.load(Ordering::Relaxed) {
            let before = *libc::__errno_location();
            libc::sem_post(ASKED.load(Ordering::Acquire));
            *libc::__errno_location() = before;
        }
    }
}

/// In the child of a fork: the count begins anew, and the observers were left behind.
pub(super) fn reset_after_fork() {
    COUNT.forget();
}
