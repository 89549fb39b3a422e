//! Marks the pages that memtrack itself maps, so that reports on the resident memory of the process, which are made from the
//! system's list of mappings, count them as memtrack's.
//!
//! **How can a mapping be marked?** The system's names for anonymous memory (`PR_SET_VMA_ANON_NAME`) are missing in most kernels.
//! What is listed everywhere is advice. Two pieces of advice that change nothing here, and that no program gives together about
//! anonymous memory: not to write the pages into a core dump (`dd`), and that they are read in random order (`rr`). Marked pages also
//! never become one mapping with pages of the program.
#![allow(unsafe_code)]

/// Marks new pages. If that fails, they count as "not explained".
// The pointer is not dereferenced: the system fails for an address that is not mapped.
#[allow(clippy::not_unsafe_ptr_arg_deref)]
pub fn mark(start: *mut libc::c_void, bytes: usize) {
    for advice in [libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
        // SAFETY: neither advice changes the content of the pages.
        unsafe { libc::madvise(start, bytes, advice) };
    }
}
