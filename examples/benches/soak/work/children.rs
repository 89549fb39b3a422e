//! Forked processes that do some work and end, in several ways.
#![allow(unsafe_code)]

use super::{DEVICE, Lap, Outcome, STREAM};
use memtrack_core::recorder::{record_alloc, record_free};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Processes of a lap: after some thirty laps none leaves a file any more.
const CHILDREN: u64 = 4;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(lap: &Lap<'_>) -> Outcome {
    lap.numbers(CHILDREN).try_for_each(|number| {
        // SAFETY: the child goes on with this thread alone, and calls what works there: the C library's heap, and memtrack.
        match unsafe { libc::fork() } {
            0 => child(number),
            -1 => Err(std::io::Error::last_os_error().into()),
            child => wait(child, number),
        }
    })
}

fn child(number: u64) -> ! {
    let _work = scope::module("child");
    for size in 1..200 {
        drop(black_box(vec![1_u8; size * 100]));
    }
    for address in 1..20 {
        record_alloc(DEVICE, STREAM, address << 20, 1 << 20);
        record_free(DEVICE, STREAM, address << 20, 1 << 20);
    }
    match number % CHILDREN {
        0 => std::process::exit(0),
        1 => drop(memtrack_core::stop()),
        2 => drop(thread::spawn(|| drop(black_box(vec![1_u8; 100_000]))).join()),
        _ => drop(memtrack_core::snapshot()),
    }
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

fn wait(child: libc::pid_t, number: u64) -> Outcome {
    let begin = Instant::now();
    let mut status = 0;
    // SAFETY: the child is ours, and so is the place for its status.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begin.elapsed() > PATIENCE {
            return Err(
                format!("forked process {child}, which ends in way {}, hangs", number % CHILDREN).into()
            );
        }
        thread::sleep(Duration::from_micros(500));
    }
    if status == 0 {
        Ok(())
    } else {
        Err(format!("forked process {child} ended with status {status:#x}").into())
    }
}
