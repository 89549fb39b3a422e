//! Tells a process that has a copy of the recorder's memory from the one that the recorder belongs to. Children of `fork` are
//! told of by handlers ([`super::fork`]), those of `_Fork` and of `clone` by nobody: they would write into their parent's
//! stream. A child of `vfork` shares its parent's memory, and what it does there is its parent's.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A page that the system empties in the copy of a process.
pub(super) struct SameMemory {
    /// `None`: the system cannot do that.
    mark: Option<NonNull<AtomicU32>>,
}

// SAFETY: an atomic that is never given back.
unsafe impl Send for SameMemory {}
// SAFETY: as above.
unsafe impl Sync for SameMemory {}

const MARKED: u32 = 1;

impl SameMemory {
    /// For the calling process.
    pub(super) fn new() -> Self {
        Self { mark: marked_page() }
    }

    /// Whether this is the process, or one that shares its memory.
    pub(super) fn is_here(&self) -> bool {
        // SAFETY: the page is never given back.
        self.mark.is_none_or(|mark| unsafe { mark.as_ref() }.load(Ordering::Relaxed) == MARKED)
    }
}

#[cfg(target_os = "linux")]
fn marked_page() -> Option<NonNull<AtomicU32>> {
    /// The smallest page; what is beyond is in the same one.
    const PAGE_BYTES: usize = 4096;
    let (flags, protection) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a fresh page wherever the kernel likes, which is large enough for the mark and aligned for it.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, PAGE_BYTES);
            return None;
        }
        crate::own::hold(PAGE_BYTES);
        let mark = NonNull::new(page.cast::<AtomicU32>())?;
        mark.as_ref().store(MARKED, Ordering::Relaxed);
        Some(mark)
    }
}

#[cfg(not(target_os = "linux"))]
fn marked_page() -> Option<NonNull<AtomicU32>> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_a_process_is_another_one() {
        let here = SameMemory::new();
        assert!(here.is_here() && here.mark.is_some());
        // SAFETY: the child looks at one word and ends.
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
