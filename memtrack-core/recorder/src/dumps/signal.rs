//! A dump when SIGUSR2 arrives. The handler only counts the signal and wakes memtrack's thread: nothing else is safe in a
//! handler, which may have interrupted the program's allocator.
#![allow(unsafe_code)]

use super::{checked_path, write};
use crate::background::{Bell, spawn};
use crate::{errno, events::fork, message, reentry};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static BELL: Bell = Bell::new();
/// The number of signals that have arrived.
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// Changes whenever a watch begins or ends; the thread of an earlier watch ends.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// One more than the [number of forks](fork::generation) before the process that has a watch; 0 if none has. A forked child
/// has none, even if its parent has.
static WATCHED_AFTER: AtomicU32 = AtomicU32::new(0);

/// Dumps on SIGUSR2 until this value is dropped.
#[must_use = "the signal is handled only while this value exists"]
#[derive(Debug)]
pub struct SignalWatch {
    /// The number of forks before the watch began: only that process has its thread and may end it.
    forks: u32,
}

/// Writes a dump to `path` whenever SIGUSR2 arrives (`kill -USR2 PID`). The documentation is at `memtrack_core`'s function.
///
/// # Errors
/// Fails when the program handles or ignores the signal, when a watch exists, when no dump can have this name, or when there
/// is no thread for it.
pub fn dump_on_signal(path: &Path) -> io::Result<SignalWatch> {
    let _inside = reentry::enter();
    let path = checked_path(path)?;
    fork::watch();
    let forks = fork::generation();
    if WATCHED_AFTER.swap(forks + 1, Ordering::AcqRel) == forks + 1 {
        let why = "dump_on_signal handles SIGUSR2 already: drop its value before another one is made";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    // From here on, dropping the watch undoes everything.
    let watch = SignalWatch { forks };
    let generation = GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
    let seen = REQUESTS.load(Ordering::Acquire);
    if let Err(error) = install() {
        // The program's handler must stay.
        std::mem::forget(watch);
        WATCHED_AFTER.store(0, Ordering::Release);
        return Err(error);
    }
    spawn(c"memtrack-signal", move || {
        let mut seen = seen;
        while GENERATION.load(Ordering::Acquire) == generation {
            let requests = REQUESTS.load(Ordering::Acquire);
            if requests == seen {
                BELL.wait(Duration::from_secs(3600));
                continue;
            }
            // Signals that arrive while a dump is written cause one more.
            seen = requests;
            match write(&path) {
                Ok(true) => message::print(format_args!("SIGUSR2: wrote {}", path.display())),
                Ok(false) => message::print("SIGUSR2: no dump, because nothing is monitored"),
                Err(error) => {
                    message::print(format_args!("SIGUSR2: the dump could not be written: {error}"));
                }
            }
        }
    })?;
    Ok(watch)
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        if self.forks != fork::generation() {
            return;
        }
        uninstall();
        GENERATION.fetch_add(1, Ordering::AcqRel);
        BELL.ring();
        WATCHED_AFTER.store(0, Ordering::Release);
    }
}

extern "C" fn handler(_signal: libc::c_int) {
    errno::preserving(|| {
        REQUESTS.fetch_add(1, Ordering::Release);
        BELL.ring();
    });
}

/// Returns the address of memtrack's handler.
fn ours() -> libc::sighandler_t {
    handler as *const () as libc::sighandler_t
}

/// Returns the disposition of SIGUSR2 and, if `new` is given, replaces it.
fn exchange(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the disposition is a struct of integers and pointers, for which zero is valid, and the call fills it; `new` is
    // null or valid, and its handler stays loaded as long as a watch exists.
    unsafe {
        let mut old = std::mem::zeroed();
        match libc::sigaction(libc::SIGUSR2, new, &mut old) {
            0 => Ok(old),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn install() -> io::Result<()> {
    let refused = |old: &libc::sigaction| {
        let how = if old.sa_sigaction == libc::SIG_IGN { "ignores" } else { "handles" };
        let why = format!(
            "the program {how} SIGUSR2, so memtrack does not: call memtrack_core::dump_snapshot where the program handles it"
        );
        Err(io::Error::new(io::ErrorKind::AddrInUse, why))
    };
    let before = exchange(None)?;
    // A forked child has inherited memtrack's handler.
    let is_free = |old: &libc::sigaction| [libc::SIG_DFL, ours()].contains(&old.sa_sigaction);
    if !is_free(&before) {
        return refused(&before);
    }
    // SAFETY: the struct contains integers and pointers, for which zero is valid; the call empties its set of signals.
    let new = unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        libc::sigemptyset(&mut new.sa_mask);
        new.sa_sigaction = ours();
        new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        new
    };
    let replaced = exchange(Some(&new))?;
    if is_free(&replaced) {
        return Ok(());
    }
    // Another thread has installed a handler since.
    exchange(Some(&replaced))?;
    refused(&replaced)
}

/// Restores the default disposition, unless the program has replaced memtrack's handler.
fn uninstall() {
    if exchange(None).is_ok_and(|now| now.sa_sigaction == ours()) {
        // SAFETY: the struct contains integers and pointers, for which zero is valid: the default disposition.
        let default: libc::sigaction = unsafe { std::mem::zeroed() };
        let _ = exchange(Some(&default));
    }
}
