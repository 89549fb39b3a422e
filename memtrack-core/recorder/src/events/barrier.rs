//! The barrier between a collector and the hooks that other threads are in: hooks are on the hot path and contain no
//! fence, so the collector, which runs rarely, makes the system execute a fence on all threads.
#![allow(unsafe_code)]

use super::threads;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until every hook that is running at the time of the call has ended, but at most a second in case a thread is
/// stopped (by a debugger). Hooks last microseconds, or a few time slices on a machine with more threads than
/// processors. Returns whether all these hooks have ended.
pub fn wait_for_hooks() -> bool {
    heavy_barrier();
    let start = Instant::now();
    for state in threads::states() {
        if state.is_current() {
            continue;
        }
        let seen = state.activity.load(Ordering::Acquire);
        while seen % 2 == 1 && state.activity.load(Ordering::Acquire) == seen {
            if start.elapsed() > Duration::from_secs(1) {
                return false;
            }
            thread::yield_now();
        }
    }
    true
}

/// Makes the earlier writes of all threads visible to this thread, and this thread's writes visible to all others, so
/// that hooks need no fence.
fn heavy_barrier() {
    const REGISTER_PRIVATE_EXPEDITED: i32 = 16;
    const PRIVATE_EXPEDITED: i32 = 8;
    // SAFETY: membarrier takes integers and accesses no memory of the program.
    let done = unsafe {
        libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) == 0
            && libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) == 0
    };
    if done {
        return;
    }
    fence(Ordering::SeqCst);
    // Wait until the other processors' store buffers have drained, which takes microseconds.
    thread::sleep(Duration::from_millis(1));
}
