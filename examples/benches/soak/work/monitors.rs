//! Monitors, trackers and snapshots that are created and dropped while the service runs, and dumps.

use super::{Lap, Outcome};
use memtrack_core::tracker::MemoryTracker;
use memtrack_core::{dump_snapshot, scope, track_memory};
use std::hint::black_box;
use std::thread;

/// Operators per lap: the bound on a tracker's series is reached after some thirty laps.
const OPERATORS: u64 = 9000;

pub fn run(lap: &Lap<'_>) -> Outcome {
    let mut tracker = MemoryTracker::new();
    tracker.start_monitor();
    {
        let _root = scope::root("Net");
        (0..OPERATORS).for_each(|number| multiply(number as usize % 50));
    }
    tracker.stop();
    if tracker.stats().memories_allocated.is_empty() {
        return Err("a tracker has seen no operator".into());
    }
    drop(tracker);
    match lap.number % 16 {
        2 => {
            memtrack_core::start_monitor();
            let recording = memtrack_core::stop();
            if recording.snapshot().events.is_empty() {
                return Err("a monitor that ended has no events".into());
            }
        }
        7 => {
            let snapshot = memtrack_core::snapshot();
            // Any thread may drop a snapshot.
            thread::spawn(move || drop(snapshot)).join().map_err(|_| "a snapshot could not be dropped")?;
        }
        12 => dump_snapshot(lap.recordings.join("dump.memtrack"))?,
        _ => {}
    }
    Ok(())
}

#[track_memory]
fn multiply(size: usize) {
    drop(black_box(vec![1_u8; 8 * size]));
}
