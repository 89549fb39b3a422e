//! The processor time of the calling thread.

/// Returns the processor time that the calling thread has used, in nanoseconds, or 0 if the system does not provide it.
/// This is a system call, which takes about 200 ns.
#[cfg(unix)]
pub(super) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-pointer is a local variable.
    let known = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0;
    if known { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

/// Returns 0, because the processor time is unknown on this system. Threads therefore earn no budget and sample small
/// blocks.
#[cfg(not(unix))]
pub(super) fn thread_cpu_ns() -> u64 {
    0
}
