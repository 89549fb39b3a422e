//! A setting of glibc's heap, for verbs that read one large file after another on several threads.
#![allow(unsafe_code)]

/// Blocks of this many bytes and more are mapped separately, so that their memory is returned to the system when they are
/// freed.
///
/// By itself glibc raises that size to 32 MiB as such blocks are freed, and keeps freed memory in a heap for each thread,
/// in pieces between which nothing larger fits: over 64 snapshots of 1 M events two threads held 300 MB where both
/// together need 220.
const MAPPED_FROM: libc::c_int = 1 << 20;

/// Makes large blocks return to the system as soon as they are freed, from now on and in the whole process. The user's
/// own setting (`MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`) has precedence.
pub(crate) fn return_large_blocks_to_the_system() {
    if ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: it sets a number in the C library under its own lock; allocated blocks keep their kind.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
    }
}
