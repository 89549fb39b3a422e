//! Threads of memtrack's own: they receive none of the program's signals, and what they allocate is memtrack's own memory.
//!
//! **Why threads of the C library and not of Rust?** The allocations that Rust's threads make before and after their
//! work would be recorded as the program's, and parking such a thread registers a destructor under the dynamic linker's
//! lock.
#![allow(unsafe_code)]

use crate::reentry;
use crate::signals::SignalsBlocked;
use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::null_mut;

/// The default stack size of Rust's threads. It is address space; only the pages that are used take memory.
const STACK_BYTES: usize = 2 << 20;

/// The work of a thread, and the thread's name.
struct Work {
    name: &'static CStr,
    run: Box<dyn FnOnce() + Send>,
}

/// Starts a detached thread that is inside memtrack until it ends. The name has at most 15 bytes; the system cuts off the
/// rest.
///
/// If `run` panics, the thread ends.
///
/// # Errors
/// Fails when the system cannot create another thread; `run` is then dropped.
pub fn start(name: &'static CStr, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _inside = reentry::enter();
    let work = Box::into_raw(Box::new(Work { name, run: Box::new(run) }));
    // The program's signals must be delivered to the program's threads.
    let signals_blocked = SignalsBlocked::now();
    // SAFETY: the attributes are a local variable. The thread is detached, so it is never joined, and it takes the box.
    let error = unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut thread = std::mem::zeroed();
        let error = libc::pthread_create(&mut thread, &attributes, begin, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        error
    };
    drop(signals_blocked);
    if error == 0 {
        return Ok(());
    }
    // SAFETY: no thread was created, so the box still belongs to this function.
    drop(unsafe { Box::from_raw(work) });
    Err(io::Error::from_raw_os_error(error))
}

extern "C" fn begin(work: *mut c_void) -> *mut c_void {
    // The guard is never dropped: blocks that the C library frees after the thread has ended do not belong to the
    // program, either.
    std::mem::forget(reentry::enter());
    // SAFETY: the pointer is the box that `start` passed to this thread alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // SAFETY: the call only names the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, work.name.as_ptr()) };
    // A panic would be a bug in memtrack; its message has been printed by then.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work.run));
    null_mut()
}

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
        start(c"memtrack-test", inspect).unwrap();
        assert_eq!(receiver.recv().unwrap(), (true, [true; 3]));
        assert!(!reentry::is_inside());
    }
}
