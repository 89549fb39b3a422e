//! Distinguishes a process that has a copy of the recorder's memory from the process that the recorder belongs to. A
//! handler is called in children of `fork` ([`super::fork`]), but not in children of `_Fork` and `clone`, which would
//! otherwise write to their parent's stream. A child of `vfork` shares its parent's memory, and its actions count as
//! its parent's.
//!
//! **How is a copy recognized without a handler?** By a page that the kernel zeroes in copies (`MADV_WIPEONFORK`).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const PAGE_BYTES: usize = 4096;
const MARKED: u32 = 1;

/// A page that the system zeroes in a copy of the process. It is a static, not a mapping, so that libraries are loaded
/// at the same addresses as without memtrack.
#[repr(align(4096))]
struct Page([AtomicU32; PAGE_BYTES / size_of::<AtomicU32>()]);

static PAGE: Page = Page([const { AtomicU32::new(0) }; PAGE_BYTES / size_of::<AtomicU32>()]);
static IS_WIPED_ON_FORK: AtomicBool = AtomicBool::new(false);

/// A marker for the memory of the process in which it was created.
pub(super) struct SameMemory(());

impl SameMemory {
    /// Marks the memory of the calling process, which must not be a copy, unless the fork handler was called in it.
    pub(super) fn new() -> Self {
        PAGE.0[0].store(MARKED, Ordering::Relaxed);
        IS_WIPED_ON_FORK.store(request_wipe_on_fork(), Ordering::Release);
        Self(())
    }

    /// Returns whether the calling process is the marked one, or one that shares its memory.
    #[inline(always)]
    pub(super) fn is_here(&self) -> bool {
        !is_copy()
    }
}

/// Returns whether the calling process is a copy in which no fork handler was called.
#[inline(always)]
pub(crate) fn is_copy() -> bool {
    PAGE.0[0].load(Ordering::Relaxed) != MARKED && IS_WIPED_ON_FORK.load(Ordering::Acquire)
}

/// Marks the memory of a forked child in which the fork handler is called.
pub(super) fn mark_child() {
    PAGE.0[0].store(MARKED, Ordering::Relaxed);
}

/// Makes the system zero the page in copies of the process; returns false if the system cannot.
fn request_wipe_on_fork() -> bool {
    // SAFETY: `sysconf` only queries a number. The advice is given only if pages have `PAGE_BYTES`, so it applies to a
    // page that contains nothing else.
    unsafe {
        libc::sysconf(libc::_SC_PAGESIZE) == PAGE_BYTES as libc::c_long
            && libc::madvise((&raw const PAGE).cast_mut().cast(), PAGE_BYTES, libc::MADV_WIPEONFORK) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_process_is_recognized() {
        let here = SameMemory::new();
        assert!(here.is_here() && IS_WIPED_ON_FORK.load(Ordering::Acquire));
        // The system call alone: another test may have installed the fork handler.
        // SAFETY: as for `fork`, and the child only reads one word and exits.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
        if child == 0 {
            let code = i32::from(here.is_here());
            // SAFETY: the call only ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: the call waits for that child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child took itself for its parent");
        assert!(here.is_here());
    }
}
