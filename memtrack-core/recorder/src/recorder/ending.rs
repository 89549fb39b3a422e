//! The end of a program that does not stop its monitors: the recording is written at exit and on a panic.
//!
//! **Why is the end recorded on one of memtrack's own stacks?** `exit` may be called in a thread of 16 KiB, `_exit` in a
//! handler with 8. The thread's own stack is used only where it is known to have enough left.

use super::session::{SESSION, Session, end_recording, has_memory, tell_left_out, write};
use super::{RECORDER, fork, with_room};
use crate::signals::Uncancelled;
use crate::{message, reentry};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, Once, TryLockError};
use std::time::{Duration, Instant};

/// Has the recording written at exit and on a panic, from now on.
pub(super) fn write_when_the_program_ends() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        #[cfg(unix)]
        if !ends_elsewhere() {
            at_exit::install();
        }
        if !std::thread::panicking() {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                // It is the program's, and what it allocates and frees is too.
                before(info);
                // memtrack's own panics, perhaps with locks in hand, are not its business here.
                if !reentry::is_inside() {
                    write_so_far(if is_the_last(info) { When::LastPanic } else { When::Panic });
                }
            }));
        }
    });
}

static ENDS_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Says that [`write_at_exit`] will be called, later than handlers of `atexit` would run.
#[cfg(feature = "cuda")]
pub fn will_be_called() {
    ENDS_ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Whether something else calls [`write_at_exit`].
#[cfg(unix)]
fn ends_elsewhere() -> bool {
    ENDS_ELSEWHERE.load(Ordering::Relaxed)
}

/// Whether anything was recorded in this process: not in a fresh child of a fork.
#[cfg(feature = "cuda")]
pub fn is_recording() -> bool {
    RECORDER.is_made()
}

/// Ends the recording because the process exits, and writes it.
#[cfg(feature = "cuda")]
pub fn write_at_exit() {
    write_so_far(When::Exit);
}

/// How long [`flush`] waits for the thread that has what it needs: as long as an exit does, because on a loaded machine that thread
/// may have to wait for a processor.
#[cfg(feature = "cuda")]
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Brings the stream up to date because the process may be gone in a moment. This may be a signal's handler, which has
/// interrupted anything: the recorder itself, and then nothing is done; or the program's heap, which is not asked for
/// memory, because the preload library has its own. The keeper does it; the child of a `fork` has none and does it itself,
/// if the store comes free. The child of a `vfork`, which shares the memory, does nothing.
#[cfg(feature = "cuda")]
pub fn flush() {
    if !RECORDER.is_made() || reentry::is_inside() {
        return;
    }
    let recorder = RECORDER.get();
    if recorder.process != std::process::id() {
        return;
    }
    let _uncancelled = Uncancelled::now();
    // Handlers of signals may have small stacks of their own.
    with_room(|| {
        if fork::generation() > 0 {
            let _inside = reentry::enter();
            recorder.stream_parts_within(FLUSH_PATIENCE);
        } else {
            recorder.keeper.ask(FLUSH_PATIENCE);
        }
    });
}

/// How long a panic waits for whoever is writing the stream.
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

/// Whether nobody can catch the panic: panics abort, or it is the one that the language raises where it cannot unwind
/// (a destructor's second panic, a C function).
fn is_the_last(info: &PanicHookInfo<'_>) -> bool {
    cfg!(panic = "abort")
        || info.location().is_some_and(|location| location.file().ends_with("core/src/panicking.rs"))
}

/// Writes what there is. Skipped when the session is busy on this thread, or for long on another one: an early end must
/// not hang.
fn write_so_far(when: When) {
    let _uncancelled = Uncancelled::now();
    with_room(|| write_what_there_is(when));
}

fn write_what_there_is(when: When) {
    let last = when == When::Exit;
    let patience = Duration::from_secs(if last && !reentry::is_inside() { 10 } else { 0 });
    let _inside = reentry::enter();
    if fork::generation() > 0 && !RECORDER.is_made() {
        // A forked child in which nothing happened leaves no file.
        return;
    }
    if RECORDER.is_made() && !RECORDER.get().same_memory.is_here() {
        // All that could be written is the parent's.
        return;
    }
    let Some(mut session) = session_within(patience) else { return };
    let Some(running) = session.as_mut().filter(|running| running.options.output.is_some()) else { return };
    // What was written a moment ago is not written again for a panic that will be caught.
    if when == When::Panic && !running.panic_pace.is_due() {
        return;
    }
    let begin = Instant::now();
    if last {
        // Other threads may still run: what is written must be of one moment.
        end_recording();
    }
    let recorder = RECORDER.get();
    let written = if running.options.stream && !last {
        // The panic may be caught: a disk that takes nothing must not hold the program up.
        recorder.stream_parts_within(PANIC_PATIENCE);
        Ok(())
    } else {
        has_memory().and_then(|()| {
            let snapshot = recorder.snapshot(&running.options, &running.baseline, false);
            write(recorder, &running.options, &snapshot)
        })
    };
    running.panic_pace.done(begin.elapsed());
    let told = if last { std::mem::take(&mut running.told) } else { Default::default() };
    drop(session);
    if last {
        tell_left_out();
        told.tell_left_out();
    }
    if let Err(error) = written {
        message::say(format_args!("the recording could not be written: {error}"));
    }
}

pub(super) fn session_within(patience: Duration) -> Option<MutexGuard<'static, Option<Session>>> {
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
        let _ = std::panic::catch_unwind(|| super::write_so_far(super::When::Exit));
    }
}
