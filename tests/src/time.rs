//! Waiting and measuring in tests. A test waits for the event itself, with a limit that only a hang exceeds. It measures speed in
//! processor time, which does not depend on other programs, and its bounds only detect code that does not terminate.
#![allow(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The time after which a wait counts as a hang, even on a busy machine and in debug builds.
pub const HANG: Duration = Duration::from_secs(15 * 60);

/// Waits until a condition is true.
///
/// # Panics
/// When it is still false after [`HANG`]; the message contains `what`, the description of the condition.
#[track_caller]
pub fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < HANG, "{what}: not after {} s", HANG.as_secs());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the calling thread's processor time so far.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of this process so far.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local variable; the two clocks exist on every Linux and on macOS.
    unsafe { libc::clock_gettime(clock, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The processor time, in seconds, within which a debug build must read or reject a hostile file. A reader that hangs on such
/// a file exceeds any limit; every other reader needs a small part of this limit (0.2 s at most). `memtrack` promises 2 s for a
/// release build on an idle machine, which a test cannot check on other machines.
pub const READS_SECONDS: u64 = 20;

/// Makes the kernel kill the program after this many `seconds` of processor time.
pub fn limited(command: &mut Command, seconds: u64) -> &mut Command {
    use std::os::unix::process::CommandExt;
    let limit = libc::rlimit { rlim_cur: seconds, rlim_max: seconds };
    let set = move || {
        // SAFETY: a system call that may be made after a fork, with a pointer to a value in the closure.
        match unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes a call that is allowed after a fork.
    unsafe { command.pre_exec(set) }
}
