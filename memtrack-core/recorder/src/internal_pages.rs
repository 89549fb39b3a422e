//! Marks the pages that memtrack itself maps, so that reports on the resident memory of the process, which are made from the
//! system's list of mappings, count them as memtrack's.
//!
//! **How can a mapping be marked?** The system's names for anonymous memory (`PR_SET_VMA_ANON_NAME`) are missing in most kernels.
//! What is listed everywhere is advice. Two pieces of advice that change nothing here, and that no program gives together about
//! anonymous memory: not to write the pages into a core dump (`dd`), and that they are read in random order (`rr`). Marked pages also
//! never become one mapping with pages of the program.
#![allow(unsafe_code)]

/// Marks new pages at an address. If that fails, they count as "not explained".
pub fn mark(address: usize, bytes: usize) {
    for advice in [libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
        // SAFETY: neither advice changes the content of any pages.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(address), bytes, advice) };
    }
}
