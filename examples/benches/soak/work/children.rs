//! Forked processes that do some work and exit in several ways.
#![allow(unsafe_code)]

use super::{DEVICE, LOADING, Lap, Outcome, STREAM};
use memtrack_core::recorder::{record_alloc, record_free};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

/// Forked processes per lap. After some thirty laps, further forked processes write no recording.
const CHILDREN: u64 = 4;
/// The maximum run time of a forked process.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The duration of one wait.
const PAUSE: Duration = Duration::from_micros(500);

pub fn run(lap: &Lap<'_>) -> Outcome {
    lap.numbers(CHILDREN).try_for_each(|number| {
        // Do not fork while a plugin is loaded: the child would inherit the C library's locks of its loader and exit handlers.
        let nothing_is_loaded = LOADING.lock();
        // SAFETY: only this thread exists in the child, which uses only the C library's heap and memtrack; both support fork.
        let child = unsafe { libc::fork() };
        if child != 0 {
            drop(nothing_is_loaded);
        }
        match child {
            0 => be_child(number),
            -1 => Err(std::io::Error::last_os_error().into()),
            child => wait(child, number),
        }
    })
}

fn be_child(number: u64) -> ! {
    let _work = scope::module("child");
    for size in 1..200 {
        drop(black_box(vec![1_u8; size * 100]));
    }
    for address in 1..20 {
        record_alloc(DEVICE, STREAM, address << 20, 1 << 20);
        record_free(DEVICE, STREAM, address << 20, 1 << 20);
    }
    match number % CHILDREN {
        0 => exit(),
        1 => drop(memtrack_core::stop()),
        // A forked process must not start threads: a thread of the parent may have held the standard library's lock.
        2 => grandchild(),
        _ => drop(memtrack_core::snapshot()),
    }
    // SAFETY: only ends the process.
    unsafe { libc::_exit(0) }
}

/// Exits like a C program: Rust's `exit` takes a lock that threads also take when they start and end.
fn exit() -> ! {
    // SAFETY: only exit handlers of the C library and memtrack run.
    unsafe { libc::exit(0) }
}

/// Forks a grandchild from the forked process.
fn grandchild() {
    // SAFETY: as in `run`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(black_box(vec![1_u8; 100_000]));
        exit();
    }
    let mut status = 0;
    // SAFETY: as in `wait`.
    let ended = child > 0 && unsafe { libc::waitpid(child, &mut status, 0) } == child && status == 0;
    // SAFETY: only ends the process.
    unsafe { libc::_exit(i32::from(!ended)) }
}

fn wait(child: libc::pid_t, number: u64) -> Outcome {
    // Counts waits, not time, because the service and its children may be suspended for a while.
    let mut waits = 0;
    let mut status = 0;
    // SAFETY: the process is a child of this one, and the pointer is to a local variable.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        waits += 1;
        if waits > TIMEOUT.as_micros() / PAUSE.as_micros() {
            // SAFETY: the process is still a child of this one, so its pid has not been reused.
            unsafe { libc::kill(child, libc::SIGKILL) };
            return Err(
                format!("forked process {child}, which ends in way {}, hangs", number % CHILDREN).into()
            );
        }
        sleep(PAUSE);
    }
    if status == 0 {
        Ok(())
    } else {
        Err(format!("forked process {child} ended with status {status:#x}").into())
    }
}
