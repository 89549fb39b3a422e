//! memtrack's own threads inside a program, and how they wait.
//!
//! **Why threads of the C library and not of Rust?** The allocations that Rust's threads make before and after their work
//! would be recorded as the program's, and parking such a thread registers a destructor under the dynamic linker's lock.
#![allow(unsafe_code)]

use crate::reentry;
use crate::signals::SignalsBlocked;
use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The work of a thread, with its name.
struct Work {
    name: &'static CStr,
    work: Box<dyn FnOnce() + Send>,
}

/// Starts a detached thread that receives none of the program's signals and whose allocations are never recorded. `name` has
/// at most 15 bytes.
///
/// # Errors
/// Fails when the system cannot create another thread.
pub fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    /// The default stack size of Rust's threads.
    const STACK_BYTES: usize = 2 << 20;
    let _inside = reentry::enter();
    // The program's signals must be delivered to the program's threads.
    let _signals_blocked = SignalsBlocked::now();
    let work = Box::into_raw(Box::new(Work { name, work: Box::new(work) }));
    // SAFETY: the attributes are a local variable. The thread is detached, so it is never joined, and becomes the owner of
    // the work.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut thread = std::mem::zeroed();
        let error = libc::pthread_create(&mut thread, &attributes, run, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        if error != 0 {
            drop(Box::from_raw(work));
            return Err(io::Error::from_raw_os_error(error));
        }
    }
    Ok(())
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // The guard is never dropped: blocks that the C library frees after the thread has ended do not belong to the program,
    // either.
    std::mem::forget(reentry::enter());
    // SAFETY: the pointer is from `spawn`, which starts one thread with it.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    let Work { name, work } = *work;
    // SAFETY: the call only names the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // A panic would be a bug in memtrack; its message has been printed by then.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    null_mut()
}

/// Wakes a thread. Rust's `park` is not used because it needs a thread-local with a destructor.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// Creates a bell that has not been rung.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits until [`ring`](Self::ring) is called, for `timeout` at most.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        let word = self.0.as_ptr();
        if self.0.swap(0, Ordering::Acquire) == 0 {
            // SAFETY: the word and the timeout exist until the call returns. A spurious return is harmless.
            unsafe { libc::syscall(libc::SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &raw const timeout) };
            self.0.swap(0, Ordering::Acquire);
        }
    }

    /// Wakes the waiting thread. Takes no lock and allocates nothing, so that a signal handler may call it; makes no system
    /// call if the thread is already being woken.
    pub(crate) fn ring(&self) {
        if self.0.swap(1, Ordering::AcqRel) == 0 {
            // SAFETY: the word exists until the call returns.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), FUTEX_WAKE_PRIVATE, 1) };
        }
    }
}

const FUTEX_WAIT_PRIVATE: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const FUTEX_WAKE_PRIVATE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn thread_is_inside_memtrack_and_receives_no_signals() {
        let (sender, receiver) = mpsc::channel();
        let inspect = move || {
            // SAFETY: both sets are local variables, and the call fills the second.
            let blocks_signals = unsafe {
                let mut blocked: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
                [libc::SIGTERM, libc::SIGINT, libc::SIGUSR2]
                    .map(|signal| libc::sigismember(&blocked, signal) == 1)
            };
            sender.send((reentry::is_inside(), blocks_signals)).unwrap();
        };
        spawn(c"memtrack-test", inspect).unwrap();
        assert_eq!(receiver.recv().unwrap(), (true, [true; 3]));
        assert!(!reentry::is_inside());
    }
}
