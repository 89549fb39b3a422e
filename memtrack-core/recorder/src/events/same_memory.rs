//! Distinguishes a process that has a copy of the recorder's memory from the one to which the recorder belongs.
//! Children of `fork` are announced by handlers ([`super::fork`]), those of `_Fork` and of `clone` are not: they
//! would write into their parent's stream. A child of `vfork` shares its parent's memory, and its actions count as
//! its parent's.
//!
//! **How is a copy recognised without a handler?** By a page that the kernel empties in copies (`MADV_WIPEONFORK`).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const PAGE_BYTES: usize = 4096;
const MARKED: u32 = 1;

/// A page that the system zeroes in a copy of the process. It is part of the program, not a mapping: so libraries are
/// loaded at the same addresses as without memtrack.
#[repr(align(4096))]
struct Page([AtomicU32; PAGE_BYTES / size_of::<AtomicU32>()]);

static PAGE: Page = Page([const { AtomicU32::new(0) }; PAGE_BYTES / size_of::<AtomicU32>()]);
static IS_EMPTIED: AtomicBool = AtomicBool::new(false);

/// The memory of the process in which it was made.
pub(super) struct SameMemory(());

impl SameMemory {
    /// Marks the calling process, which is announced by fork handlers if it is a child.
    pub(super) fn new() -> Self {
        PAGE.0[0].store(MARKED, Ordering::Relaxed);
        IS_EMPTIED.store(is_emptied_in_copies(), Ordering::Release);
        Self(())
    }

    /// Returns whether this is that process, or one that shares its memory.
    #[inline(always)]
    pub(super) fn is_here(&self) -> bool {
        PAGE.0[0].load(Ordering::Relaxed) == MARKED || !IS_EMPTIED.load(Ordering::Acquire)
    }
}

/// Makes the system zero the page in copies; false if it cannot.
#[cfg(target_os = "linux")]
fn is_emptied_in_copies() -> bool {
    // SAFETY: queries a number; the advice is for a page that holds nothing else, if pages have that size.
    unsafe {
        libc::sysconf(libc::_SC_PAGESIZE) == PAGE_BYTES as libc::c_long
            && libc::madvise((&raw const PAGE).cast_mut().cast(), PAGE_BYTES, libc::MADV_WIPEONFORK) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn is_emptied_in_copies() -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_process_is_recognized() {
        let here = SameMemory::new();
        assert!(here.is_here() && IS_EMPTIED.load(Ordering::Acquire));
        // SAFETY: the child reads one word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(here.is_here());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: waits for that child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child took itself for its parent");
        assert!(here.is_here());
    }
}
