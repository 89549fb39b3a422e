//! A setting of glibc's heap, for verbs that read one large file after another on several threads.
#![allow(unsafe_code)]

/// Blocks of this many bytes and more are mapped separately, so that freeing them returns their memory to the system.
///
/// By default glibc raises this threshold up to 32 MiB as such blocks are freed, and keeps freed memory in one heap per
/// thread, in pieces that larger blocks do not fit into: for 64 snapshots of 1 M events two threads held 300 MB where
/// 220 MB are enough.
const MMAP_THRESHOLD: libc::c_int = 1 << 20;

/// Makes large blocks return to the system as soon as they are freed, from now on and in the whole process. A setting
/// by the user (`MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`) takes precedence.
pub(crate) fn return_large_blocks_to_the_system() {
    if ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: `mallopt` sets a number under the C library's lock; allocated blocks are not affected.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    }
}
