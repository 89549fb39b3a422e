//! A forked child of a test.
#![allow(unsafe_code)]

use crate::time::HANG;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Forks, and returns what `work` returned in the child; none where that panicked or died.
///
/// # Panics
/// Where no process can be made.
pub fn forked(work: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child runs `work` on the only thread that it has, and ends without what belongs to the parent being dropped.
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
                assert!(child > 0, "a process can be made");
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

/// Waits for a forked child; its status, as the system has it. One that hangs is killed.
pub fn status_of(child: libc::pid_t) -> i32 {
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: the out-pointer is of this function.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > HANG {
            eprintln!("the forked child {child} hangs");
            // SAFETY: it has not been waited for, so the number is still the child's.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
    status
}
