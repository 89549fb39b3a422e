//! Writes the recording at exit and on a panic, for programs that do not stop their monitors. At exit, the thread that
//! writes a stream finishes it. The exiting thread only waits, because it may have interrupted the program's allocator.
//!
//! **Why is the recording written on one of memtrack's separate stacks?** `exit` may be called on a thread with a stack
//! of 16 KiB, and `_exit` in a signal handler with a stack of 8 KiB. The thread's stack is used only if it is known to
//! have enough room left.

use super::session::{SESSION, Session, end_recording, has_memory, report_omissions, write};
use super::streaming::lock_within;
use super::{RECORDER, fork, with_room};
use crate::signals::CancellationBlocked;
use crate::{message, reentry};
use std::panic::PanicHookInfo;
use std::sync::{MutexGuard, Once};
use std::time::{Duration, Instant};

/// Installs the handlers that write the recording at exit and on a panic.
pub(super) fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        at_exit::install();
        if !std::thread::panicking() {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                // This is the program's hook, so its allocations are recorded.
                before(info);
                // Panics inside memtrack, perhaps with locks held, are handled elsewhere.
                if !reentry::is_inside() {
                    write_so_far(if is_fatal(info) { Trigger::LastPanic } else { Trigger::Panic });
                }
            }));
        }
    });
}

/// How long a panic waits for the thread that is writing the stream.
const PANIC_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the recording is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// A panic, which may be caught.
    Panic,
    /// A panic that ends the process.
    LastPanic,
    /// The process exits.
    Exit,
}

/// Returns whether the panic cannot be caught, either because panics abort or because Rust raises this panic where it
/// cannot unwind (after a panic in a destructor during unwinding, or in an `extern "C"` function).
fn is_fatal(info: &PanicHookInfo<'_>) -> bool {
    cfg!(panic = "abort")
        || info.location().is_some_and(|location| location.file().ends_with("core/src/panicking.rs"))
}

/// Writes the recording so far, unless this thread holds the session's lock, or another thread holds it for too long: the
/// end of the process must not hang.
fn write_so_far(trigger: Trigger) {
    let _no_cancellation = CancellationBlocked::now();
    let is_exit = trigger == Trigger::Exit;
    if is_exit && RECORDER.is_made() && RECORDER.get().same_memory.is_here() {
        let stream_thread = &RECORDER.get().stream_thread;
        if stream_thread.is_alive() {
            return stream_thread.finish_at_exit(EXIT_TIMEOUT);
        }
    }
    let timeout = if is_exit && !reentry::is_inside() { EXIT_TIMEOUT } else { Duration::ZERO };
    with_room(|| write_recording(trigger, timeout));
}

/// Ends the recording because the process is exiting. Called on the thread that writes the stream.
pub(super) fn write_on_stream_thread() {
    write_recording(Trigger::Exit, EXIT_TIMEOUT);
}

/// How long the end of the process waits for the recording: for its disk, and for threads that hold its locks.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

fn write_recording(trigger: Trigger, timeout: Duration) {
    let is_exit = trigger == Trigger::Exit;
    let _inside = reentry::enter();
    if fork::generation() > 0 && !RECORDER.is_made() {
        // A forked child without events leaves no file.
        return;
    }
    if RECORDER.is_made() && !RECORDER.get().same_memory.is_here() {
        // The recorded data belongs to the parent.
        return;
    }
    let Some(mut session) = lock_session_within(timeout) else { return };
    let Some(running) = session.as_mut().filter(|running| running.options.output.is_some()) else { return };
    // A panic that may be caught does not write the recording again if it was written recently.
    if trigger == Trigger::Panic && !running.panic_pace.is_due() {
        return;
    }
    let begin = Instant::now();
    if is_exit {
        // Other threads may still be running, but all written data must be from the same moment.
        end_recording();
    }
    let recorder = RECORDER.get();
    let written = if running.options.stream && !is_exit {
        // The panic may be caught: a stuck disk must not delay the program.
        recorder.stream_all_chunks_within(PANIC_TIMEOUT);
        Ok(())
    } else {
        has_memory().and_then(|()| {
            let snapshot = recorder.snapshot(&running.options, &running.baseline, false);
            write(recorder, &running.options, &snapshot)
        })
    };
    running.panic_pace.done(begin.elapsed());
    let reports = if is_exit { std::mem::take(&mut running.reports) } else { Default::default() };
    drop(session);
    if is_exit {
        report_omissions();
        reports.print_skipped();
    }
    if let Err(error) = written {
        message::print(format_args!("the recording could not be written: {error}"));
    }
}

/// Locks the session; `None` if the lock does not become free within the timeout.
pub(super) fn lock_session_within(timeout: Duration) -> Option<MutexGuard<'static, Option<Session>>> {
    // If another thread is writing the recording, exiting now would truncate it.
    lock_within(SESSION.get(), timeout, Duration::from_millis(1))
}

mod at_exit {
    #![allow(unsafe_code)]

    /// Registers the handler with the C library: it runs when `main` returns and on `std::process::exit`.
    pub(super) fn install() {
        // SAFETY: the handler is a plain function that stays loaded and does not unwind, because it catches panics.
        unsafe { libc::atexit(handler) };
    }

    extern "C" fn handler() {
        // A panic must not cross into C; its message has been printed by then.
        let _ = std::panic::catch_unwind(|| super::write_so_far(super::Trigger::Exit));
    }
}
