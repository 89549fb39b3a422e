//! A forked child of a test.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

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
