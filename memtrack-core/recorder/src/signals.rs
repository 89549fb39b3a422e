//! Signals that a thread takes for a while, or never, so that memtrack's own work neither catches the program's nor ends it
//! by one of its own; and requests to end the thread, which must not end it in the middle of memtrack's work.
#![allow(unsafe_code)]

/// While it lives, the thread takes no signal, and threads that it starts never do: the program's signals are for the
/// program's threads.
#[must_use = "signals reach the thread again when the guard is dropped"]
pub struct Unsignalled {
    #[cfg(unix)]
    before: libc::sigset_t,
}

impl Unsignalled {
    /// From now on.
    pub fn now() -> Self {
        // SAFETY: both sets are ours; the first is filled before it is used, the second by the call.
        #[cfg(unix)]
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Self { before }
        }
        #[cfg(not(unix))]
        Self {}
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        // SAFETY: the set that was there before.
        #[cfg(unix)]
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut())
        };
    }
}

/// While it lives, `pthread_cancel` does not end the thread. A program's `malloc` is no place at which a thread is cancelled, so
/// its locks may be held there; what memtrack does inside of it (writes, waits) is.
#[must_use = "the thread can be cancelled again when the guard is dropped"]
pub struct Uncancelled {
    #[cfg(target_os = "linux")]
    before: libc::c_int,
}

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Uncancelled {
    /// From now on.
    pub fn now() -> Self {
        #[cfg(target_os = "linux")]
        {
            // glibc's and musl's.
            const DISABLE: libc::c_int = 1;
            let mut before = 0;
            // SAFETY: changes a word of the calling thread's, and fills ours.
            unsafe { pthread_setcancelstate(DISABLE, &mut before) };
            Self { before }
        }
        #[cfg(not(target_os = "linux"))]
        Self {}
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: as it was before.
        #[cfg(target_os = "linux")]
        unsafe {
            pthread_setcancelstate(self.before, std::ptr::null_mut())
        };
    }
}

/// The signals of a write that fails: to a pipe that nobody reads, and beyond the largest file the process may have.
#[cfg(unix)]
const OF_WRITES: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Does what may write where nothing can be written, without the signals that would end a C program for it.
#[cfg(unix)]
pub fn without_write_signals<R>(write: impl FnOnce() -> R) -> R {
    let _uncancelled = Uncancelled::now();
    // SAFETY: all sets are ours and filled by the calls before they are used. Both signals are directed at the thread that
    // wrote, so one that is taken here is ours unless one was pending before, which stays.
    unsafe {
        let mut of_writes: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut of_writes);
        OF_WRITES.iter().for_each(|&signal| {
            libc::sigaddset(&mut of_writes, signal);
        });
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &of_writes, &mut before);
        let pending_before = pending();
        let done = write();
        for signal in OF_WRITES {
            if pending()[place(signal)] && !pending_before[place(signal)] {
                take(signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

#[cfg(unix)]
fn place(signal: libc::c_int) -> usize {
    usize::from(signal == OF_WRITES[1])
}

/// Which of the signals wait for this thread or the process.
#[cfg(unix)]
fn pending() -> [bool; 2] {
    // SAFETY: the set is ours, and read only where the call has filled it.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        let filled = libc::sigpending(&mut pending) == 0;
        OF_WRITES.map(|signal| filled && libc::sigismember(&pending, signal) == 1)
    }
}

/// Takes a signal that is pending and blocked.
#[cfg(unix)]
fn take(signal: libc::c_int) {
    // SAFETY: the set is ours and filled; the signal is pending, and where another thread has taken it meanwhile, Linux
    // does not wait.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        #[cfg(target_os = "linux")]
        {
            let no_wait: libc::timespec = std::mem::zeroed();
            libc::sigtimedwait(&set, std::ptr::null_mut(), &no_wait);
        }
        #[cfg(not(target_os = "linux"))]
        {
            let mut taken = 0;
            libc::sigwait(&set, &mut taken);
        }
    }
}

/// As it is: there are no such signals.
#[cfg(not(unix))]
pub fn without_write_signals<R>(write: impl FnOnce() -> R) -> R {
    write()
}
