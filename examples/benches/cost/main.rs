//! Runs the training once in one of memtrack's modes and measures it; `cost.py` and `accuracy.py` run this many times and
//! compare.
//!
//! `off` installs the tracking allocator and records nothing, `default` is `start_monitor()`, `exact` records every
//! allocation with its stack and keeps the newest 1 Mi events (the default bound), `exact-all` does the same but keeps all
//! events, and `budget` limits memtrack's share of the time to `--budget` and keeps all events. Prints one line of
//! JSON. With `--rows FILE`, the ranking of operators is written to this file as JSON; otherwise no report is made.
#![allow(missing_docs)]

use std::error::Error;
use std::time::Instant;

use memtrack_core::recorder::Options;
use memtrack_core::{By, TrackingAllocator, start_monitor_with, stop};
use memtrack_examples::config::Config;
use memtrack_examples::training;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const USAGE: &str = "usage: cost [--mode off|default|exact|exact-all|budget] [--config default|tiny] [--steps N] \
                     [--budget SHARE] [--rows FILE]";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut mode, mut config) = (String::from("off"), Config::default());
    let (mut steps, mut budget, mut rows) = (None, 0.03, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--mode" => mode = value()?,
            "--config" => match value()?.as_str() {
                "default" => config = Config::default(),
                "tiny" => config = Config::tiny(),
                _ => return Err(USAGE.into()),
            },
            "--steps" => steps = Some(value()?.parse()?),
            "--budget" => budget = value()?.parse()?,
            "--rows" => rows = Some(value()?),
            // `cargo bench` passes this argument.
            "--bench" => {}
            _ => return Err(USAGE.into()),
        }
    }
    config.steps = steps.unwrap_or(config.steps);
    let options = match mode.as_str() {
        "off" => None,
        "default" => Some(Options::new()),
        "budget" => Some(Options::new().budget(budget).max_entries(u64::MAX)),
        "exact" => Some(Options::new().exact()),
        "exact-all" => Some(Options::new().exact().max_entries(u64::MAX)),
        _ => return Err(USAGE.into()),
    };

    let start = Instant::now();
    if let Some(options) = &options {
        start_monitor_with(options)?;
    }
    let outcome = training::train(&config, |_, _| {})?;
    let trained = (start.elapsed(), used());
    let recording = options.map(|_| stop());
    let stopped = (start.elapsed(), used());

    let devices = recording.as_ref().map_or(&[][..], |recording| &recording.snapshot().devices);
    let (allocations, recorded, dropped) = devices.iter().fold((0, 0, 0), |sums, device| {
        (sums.0 + device.allocations, sums.1 + device.recorded, sums.2 + device.dropped)
    });
    let stacks = recording.as_ref().map_or(0, |recording| recording.snapshot().stacks.len());
    let frames = recording.as_ref().map_or(0, |recording| recording.snapshot().stacks.addresses.len());
    let sampling = recording.as_ref().and_then(|recording| recording.snapshot().sampling).unwrap_or_default();
    if let (Some(path), Some(recording)) = (rows, &recording) {
        std::fs::write(path, recording.top(By::Operator, usize::MAX).to_json().to_string())?;
    }
    let last_loss = outcome.losses.last().copied().unwrap_or_default();
    println!(
        "{{\"mode\": \"{mode}\", \"wall_seconds\": {:.6}, \"cpu_seconds\": {:.6}, \"peak_kib\": {}, \
         \"stop_seconds\": {:.6}, \"stop_cpu_seconds\": {:.6}, \"peak_kib_after_stop\": {}, \
         \"allocations\": {allocations}, \"recorded\": {recorded}, \"dropped\": {dropped}, \"stacks\": {stacks}, \
         \"frames\": {frames}, \"unrecorded\": {}, \"own_share\": {:.5}, \"exact_share\": {:.5}, \
         \"widest_interval_bytes\": {}, \"last_loss\": {last_loss}}}",
        trained.0.as_secs_f64(),
        trained.1.cpu_seconds,
        trained.1.peak_kib,
        (stopped.0 - trained.0).as_secs_f64(),
        stopped.1.cpu_seconds - trained.1.cpu_seconds,
        stopped.1.peak_kib,
        sampling.unrecorded_blocks,
        sampling.spent_seconds / sampling.cpu_seconds.max(1e-9),
        sampling.exact_seconds / sampling.cpu_seconds.max(1e-9),
        sampling.widest_interval_bytes,
    );
    Ok(())
}

/// The resource usage of the process so far.
struct Used {
    /// User and system time of all threads.
    cpu_seconds: f64,
    /// The largest resident set, in KiB.
    peak_kib: u64,
}

#[allow(unsafe_code)]
fn used() -> Used {
    // SAFETY: `rusage` consists of integers, for which zero is valid, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Used { cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime), peak_kib: peak_kib() }
}

/// Returns the peak resident set in KiB, or 0 if unknown. Not `ru_maxrss`, which includes the program before `exec`.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|peak| peak.parse().ok()).unwrap_or(0)
}
