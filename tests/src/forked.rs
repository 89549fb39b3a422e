//! Runs and awaits forked children in tests.
#![allow(unsafe_code)]

use crate::time::HANG;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work` in a forked child and returns its result, or `None` if `work` panicked or the child died.
///
/// # Panics
/// When no process can be created.
pub fn forked(work: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child runs `work` on its only thread, and ends without dropping values of the parent.
    unsafe {
        match libc::fork() {
            0 => {
                let code = match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(true) => 0,
                    Ok(false) => 1,
                    Err(_) => 2,
                };
                libc::_exit(code)
            }
            child => {
                assert!(child > 0, "a process can be created");
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
                    (true, 0) => Some(true),
                    (true, 1) => Some(false),
                    _ => None,
                }
            }
        }
    }
}

/// Waits for a forked child and returns its raw wait status. A child that hangs is killed.
pub fn status_of(child: libc::pid_t) -> i32 {
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: the out-pointer refers to a local variable.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > HANG {
            eprintln!("the forked child {child} hangs");
            // SAFETY: the child has not been waited for, so its id cannot have been reused.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
    status
}
