//! How tests wait and measure. A test waits for the event itself, with a limit that only a hang exceeds; it measures speed in
//! processor time, which other programs do not use up, and its bounds are those of something that never ends.
#![allow(unsafe_code)]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an event before it counts as a hang: on a machine that does much else, and in debug builds.
pub const HANG: Duration = Duration::from_secs(15 * 60);

/// Waits until something is so.
///
/// # Panics
/// When it is not so after [`HANG`]; the message names `what` was waited for.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}: not after {} s", HANG.as_secs());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processor time of the calling thread so far.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of all threads of this process so far.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is the caller's; the two clocks exist on every Linux and on macOS.
    unsafe { libc::clock_gettime(clock, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Processor time, in seconds, within which a file that is made to break readers must be answered, in a debug build. A
/// reader that such a file holds up takes it without end; the others take a small part of it (the hostile files 0.2 s at
/// most). What `memtrack` promises is 2 s of a release build on an idle machine, which a test cannot check on any other.
pub const READS_SECONDS: u64 = 20;

/// Has the kernel kill the program after so many `seconds` of processor time.
pub fn limited(command: &mut Command, seconds: u64) -> &mut Command {
    use std::os::unix::process::CommandExt;
    let limit = libc::rlimit { rlim_cur: seconds, rlim_max: seconds };
    let set = move || {
        // SAFETY: a plain system call with a value of the closure's; it may be called after a fork.
        match unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure calls what may be called after a fork.
    unsafe { command.pre_exec(set) }
}
