//! The time and memory needed to load a snapshot into the model, as medians over a few loads in one process.
//!
//! Run `cargo bench -p memtrack-core --bench snapshot_load -- FILE` to compare with CPython's `pickle.load` of the same
//! file. With `--once`, the benchmark loads the file once and prints the processor seconds and the elapsed seconds of
//! the load alone, not counting the time to start the process or to drop the result;
//! memtrack-cli/benches/snapshot_speed.py measures the same for CPython.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use std::time::Instant;

const LOADS: usize = 5;

/// Returns the processor time that this thread has used so far, in both user and system mode. Loading uses no other
/// thread.
fn processor_seconds() -> f64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds on the processor") / 1e9
}

fn main() {
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("usage: snapshot_load [--once] FILE");
        return;
    };
    if std::env::args().any(|argument| argument == "--once") {
        let (processor, clock) = (processor_seconds(), Instant::now());
        let loaded = Snapshot::open(&path, LoadOptions::default()).expect("a readable snapshot");
        println!("{} {}", processor_seconds() - processor, clock.elapsed().as_secs_f64());
        std::mem::forget(loaded);
        return;
    }
    let mut seconds: Vec<f64> = (0..LOADS)
        .map(|_| {
            let start = Instant::now();
            let loaded = Snapshot::open(&path, LoadOptions::default()).expect("a readable snapshot");
            assert!(loaded.snapshot.pytorch.is_some());
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    println!("load: median {:.3} s, {:.0} MB/s", seconds[LOADS / 2], bytes as f64 / seconds[LOADS / 2] / 1e6);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines().filter(|line| line.starts_with("VmHWM")) {
        println!(
            "peak memory of {LOADS} loads, one after another: {}",
            line.trim_start_matches("VmHWM:").trim()
        );
    }
}
