//! How long a snapshot takes to load into the model, and how much memory: medians over a few loads in one process.
//!
//! `cargo bench -p memtrack-core --bench snapshot_load -- FILE`, beside CPython's `pickle.load` of the same file. With
//! `--once` it loads once and says nothing: whoever started it looks at what the process took
//! (memtrack-cli/benches/snapshot_speed.py).

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::pytorch::LoadOptions;
use std::time::Instant;

const LOADS: usize = 5;

fn main() {
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("name a snapshot to load");
        return;
    };
    if std::env::args().any(|argument| argument == "--once") {
        Snapshot::open(&path, LoadOptions::default()).expect("a readable snapshot");
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
