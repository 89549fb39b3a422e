//! Blocks signals in a thread, temporarily or permanently, so that memtrack's work neither receives the program's
//! signals nor kills the program with a signal that it causes; and blocks cancellation, which must not end the thread
//! in the middle of memtrack's work.
#![allow(unsafe_code)]

/// A guard that keeps the thread from receiving signals while it exists. Threads that are started while it exists never
/// receive any signals, because the program's signals are meant for the program's threads.
#[must_use = "signals reach the thread again when the guard is dropped"]
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// Blocks all signals from now on.
    pub fn now() -> Self {
        // SAFETY: both sets are local variables; `all` is filled before it is used, and the call fills `before`.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the call only restores the previous set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// A guard that keeps `pthread_cancel` from ending the thread while it exists. `malloc` is not a cancellation point, so a
/// program may hold locks when it calls `malloc`. But memtrack's work inside `malloc` (writes, waits) contains
/// cancellation points.
#[must_use = "the thread can be cancelled again when the guard is dropped"]
pub struct CancellationBlocked {
    before: libc::c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl CancellationBlocked {
    /// Blocks cancellation from now on.
    pub fn now() -> Self {
        // The value of `PTHREAD_CANCEL_DISABLE` in glibc and musl.
        const DISABLE: libc::c_int = 1;
        let mut before = 0;
        // SAFETY: the call changes a word of the calling thread and writes to a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before }
    }
}

impl Drop for CancellationBlocked {
    fn drop(&mut self) {
        // SAFETY: the call only restores the previous state.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// The signals that a failed write raises: to a pipe without a reader, and beyond the process's limit on file sizes.
const WRITE_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Calls `write` with `WRITE_SIGNALS` blocked, and discards the signals that it caused, which by default end the process.
pub fn without_write_signals<R>(write: impl FnOnce() -> R) -> R {
    let _no_cancellation = CancellationBlocked::now();
    // SAFETY: all sets are local variables and filled by the calls before they are used. Both signals are sent to the
    // thread that wrote, so a signal that is pending now and was not pending before was caused by this write.
    unsafe {
        let mut write_signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut write_signals);
        WRITE_SIGNALS.iter().for_each(|&signal| {
            libc::sigaddset(&mut write_signals, signal);
        });
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &write_signals, &mut before);
        let pending_before = pending();
        let done = write();
        for signal in WRITE_SIGNALS {
            if pending()[index_of(signal)] && !pending_before[index_of(signal)] {
                discard(signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

fn index_of(signal: libc::c_int) -> usize {
    usize::from(signal == WRITE_SIGNALS[1])
}

/// Returns which of [`WRITE_SIGNALS`] are pending for this thread or the process.
fn pending() -> [bool; 2] {
    // SAFETY: the set is a local variable and is read only if the call has filled it.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        let filled = libc::sigpending(&mut pending) == 0;
        WRITE_SIGNALS.map(|signal| filled && libc::sigismember(&pending, signal) == 1)
    }
}

/// Consumes a signal that is pending and blocked.
fn discard(signal: libc::c_int) {
    // SAFETY: the set is a local variable and filled. The signal is pending; if another thread has consumed it
    // meanwhile, the call does not wait.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        let no_wait: libc::timespec = std::mem::zeroed();
        libc::sigtimedwait(&set, std::ptr::null_mut(), &no_wait);
    }
}
