//! Forked processes that do some work and end, in several ways.
#![allow(unsafe_code)]

use super::{DEVICE, LOADING, Lap, Outcome, STREAM};
use memtrack_core::recorder::{record_alloc, record_free};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

/// Processes of a lap: after some thirty laps none leaves a file any more.
const CHILDREN: u64 = 4;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one is waited for at a time.
const PAUSE: Duration = Duration::from_micros(500);

pub fn run(lap: &Lap<'_>) -> Outcome {
    lap.numbers(CHILDREN).try_for_each(|number| {
        // The C library does not mend its loader's locks and that of exit handlers in a child.
        let nothing_is_loaded = LOADING.lock();
        // SAFETY: the child goes on with this thread alone, and calls what works there: the C library's heap, and memtrack.
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
        // Threads are not for such a process: the standard library's lock may be held by one that is not here.
        2 => grandchild(),
        _ => drop(memtrack_core::snapshot()),
    }
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// Ends the process in order, as a C program does: the standard library's own `exit` takes a lock that threads take when
/// they begin and end.
fn exit() -> ! {
    // SAFETY: what runs at exit is the C library's and memtrack's.
    unsafe { libc::exit(0) }
}

/// A process forked from the forked one.
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
    // Waits are counted, not time: somebody may stop the service and its children for a while.
    let mut waits = 0;
    let mut status = 0;
    // SAFETY: the child is ours, and so is the place for its status.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        waits += 1;
        if waits > PATIENCE.as_micros() / PAUSE.as_micros() {
            // SAFETY: still our child.
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
