//! Writes the recording at exit and on a panic, in a program that does not stop its monitors.
//!
//! **Why is the end recorded on one of memtrack's own stacks?** `exit` may be called in a thread of 16 KiB, `_exit` in a
//! handler with 8. The thread's own stack is used only where it is known to have enough left.

use super::session::{SESSION, Session, end_recording, has_memory, report_omissions, write};
use super::{RECORDER, fork, with_room};
use crate::signals::CancellationBlocked;
use crate::{message, reentry};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, Once, TryLockError};
use std::time::{Duration, Instant};

/// Installs the handlers that write the recording at exit and on a panic.
pub(super) fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        #[cfg(unix)]
        if !is_handled_elsewhere() {
            at_exit::install();
        }
        if !std::thread::panicking() {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                // It is the program's hook, and its allocations are too.
                before(info);
                // memtrack's own panics, perhaps with locks held, are handled elsewhere.
                if !reentry::is_inside() {
                    write_so_far(if is_fatal(info) { When::LastPanic } else { When::Panic });
                }
            }));
        }
    });
}

static HANDLED_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Announces that [`write_at_exit`] will be called, later than handlers of `atexit` would run.
#[cfg(feature = "cuda")]
pub fn set_handled_elsewhere() {
    HANDLED_ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Returns whether something else calls [`write_at_exit`].
#[cfg(unix)]
fn is_handled_elsewhere() -> bool {
    HANDLED_ELSEWHERE.load(Ordering::Relaxed)
}

/// Returns whether anything was recorded in this process: false in a new child of a fork.
#[cfg(feature = "cuda")]
pub fn is_recording() -> bool {
    RECORDER.is_made()
}

/// Ends the recording because the process exits, and writes it.
#[cfg(feature = "cuda")]
pub fn write_at_exit() {
    write_so_far(When::Exit);
}

/// The time that [`flush`] waits for the thread that holds the stream: as long as an exit does, because on a
/// loaded machine that thread may have to wait for a processor.
#[cfg(feature = "cuda")]
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Brings the stream up to date because the process may end in a moment. The caller may be a signal handler, which
/// has interrupted anything: the recorder itself, and then nothing is done; or the program's heap, which is not used,
/// because the preload library has its own. The stream thread does the work; the child of a `fork` has none and does
/// it itself, if the stream's lock becomes free. The child of a `vfork`, which shares the memory, does nothing.
#[cfg(feature = "cuda")]
pub fn flush() {
    if !RECORDER.is_made() || reentry::is_inside() {
        return;
    }
    let recorder = RECORDER.get();
    if recorder.process != std::process::id() {
        return;
    }
    let _no_cancellation = CancellationBlocked::now();
    // Signal handlers may run on small stacks.
    with_room(|| {
        if fork::generation() > 0 {
            let _inside = reentry::enter();
            recorder.stream_parts_within(FLUSH_PATIENCE);
        } else {
            recorder.stream_thread.request_update(FLUSH_PATIENCE);
        }
    });
}

/// The time that a panic waits for the thread that is writing the stream.
const PANIC_PATIENCE: Duration = Duration::from_secs(1);

/// Why the recording is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// A panic, which may be caught.
    Panic,
    /// A panic that ends the process.
    LastPanic,
    /// The process exits.
    Exit,
}

/// Returns whether the panic cannot be caught: panics abort, or it is the one that the language raises where it cannot unwind
/// (a destructor's second panic, a C function).
fn is_fatal(info: &PanicHookInfo<'_>) -> bool {
    cfg!(panic = "abort")
        || info.location().is_some_and(|location| location.file().ends_with("core/src/panicking.rs"))
}

/// Writes the recording so far. Skipped when the session is busy on this thread, or for long on another one: an early
/// end must not hang.
fn write_so_far(when: When) {
    let _no_cancellation = CancellationBlocked::now();
    with_room(|| write_recording(when));
}

fn write_recording(when: When) {
    let last = when == When::Exit;
    let patience = Duration::from_secs(if last && !reentry::is_inside() { 10 } else { 0 });
    let _inside = reentry::enter();
    if fork::generation() > 0 && !RECORDER.is_made() {
        // A forked child without events leaves no file.
        return;
    }
    if RECORDER.is_made() && !RECORDER.get().same_memory.is_here() {
        // All data that could be written is the parent's.
        return;
    }
    let Some(mut session) = lock_session_within(patience) else { return };
    let Some(running) = session.as_mut().filter(|running| running.options.output.is_some()) else { return };
    // A recording written a moment ago is not written again for a panic that will be caught.
    if when == When::Panic && !running.panic_pace.is_due() {
        return;
    }
    let begin = Instant::now();
    if last {
        // Other threads may still run: the written data must be of one moment.
        end_recording();
    }
    let recorder = RECORDER.get();
    let written = if running.options.stream && !last {
        // The panic may be caught: a stuck disk must not delay the program.
        recorder.stream_parts_within(PANIC_PATIENCE);
        Ok(())
    } else {
        has_memory().and_then(|()| {
            let snapshot = recorder.snapshot(&running.options, &running.baseline, false);
            write(recorder, &running.options, &snapshot)
        })
    };
    running.panic_pace.done(begin.elapsed());
    let reports = if last { std::mem::take(&mut running.reports) } else { Default::default() };
    drop(session);
    if last {
        report_omissions();
        reports.print_skipped();
    }
    if let Err(error) = written {
        message::print(format_args!("the recording could not be written: {error}"));
    }
}

pub(super) fn lock_session_within(patience: Duration) -> Option<MutexGuard<'static, Option<Session>>> {
    let start = Instant::now();
    loop {
        match SESSION.get().try_lock() {
            Ok(session) => return Some(session),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return None,
            // Another thread is writing the recording: exiting now would truncate it.
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
        let _ = std::panic::catch_unwind(|| super::write_so_far(super::When::Exit));
    }
}
