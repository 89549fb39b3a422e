//! Forked processes that do some work and end, in several ways.
#![allow(unsafe_code)]

use super::{DEVICE, LOADING, Lap, Outcome, STREAM};
use memtrack_core::recorder::{record_alloc, record_free};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

/// Processes in a lap: after some thirty laps no more leave a file.
const CHILDREN: u64 = 4;
/// The time that a process may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time of one wait.
const PAUSE: Duration = Duration::from_micros(500);

pub fn run(lap: &Lap<'_>) -> Outcome {
    lap.numbers(CHILDREN).try_for_each(|number| {
        // The C library does not reset the locks of its loader and of exit handlers in a child.
        let nothing_is_loaded = LOADING.lock();
        // SAFETY: the child continues with this thread only, and uses only the C library's heap and memtrack, which support that.
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
        // Such a process must not start threads: a thread of the parent may hold the standard library's lock.
        2 => grandchild(),
        _ => drop(memtrack_core::snapshot()),
    }
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// Exits like a C program: the standard library's `exit` takes a lock that threads take when they begin and end.
fn exit() -> ! {
    // SAFETY: only exit handlers of the C library and memtrack run.
    unsafe { libc::exit(0) }
}

/// Forks a process from the forked one.
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
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(i32::from(!ended)) }
}

fn wait(child: libc::pid_t, number: u64) -> Outcome {
    // Counts waits, not time, because the service and its children may be stopped for a while.
    let mut waits = 0;
    let mut status = 0;
    // SAFETY: a child of this process, and a pointer to a local variable.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        waits += 1;
        if waits > TIMEOUT.as_micros() / PAUSE.as_micros() {
            // SAFETY: still a child of this process.
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
