//! Snapshots from the recording of a program that is still running.

use memtrack_file::unfinished::{EventCounts, find_live};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use std::collections::HashMap;

/// Restricts a recording to its events up to `ticks`. The live blocks, segments and sums become those at that time.
pub fn restrict_to(snapshot: &mut Snapshot, ticks: u64) {
    let rows: Vec<u32> = (0..snapshot.events.len())
        .filter(|&row| snapshot.events.ticks[row] <= ticks)
        .map(|row| row as u32)
        .collect();
    if rows.len() < snapshot.events.len() {
        snapshot.events.pick(&rows);
        (snapshot.blocks, snapshot.segments) = find_live(&snapshot.events);
        snapshot.devices = EventCounts::of(&snapshot.events).rows();
    }
}

/// Keeps the newest `max_entries` events of each device, as PyTorch's ring does. The live blocks stay.
pub fn keep_newest(snapshot: &mut Snapshot, max_entries: u64) {
    let mut kept: HashMap<DeviceId, u64> = HashMap::new();
    let mut dropped: HashMap<DeviceId, u64> = HashMap::new();
    let mut rows: Vec<u32> = Vec::new();
    for row in (0..snapshot.events.len()).rev() {
        let device = snapshot.events.device[row];
        let count = kept.entry(device).or_default();
        if *count < max_entries {
            *count += 1;
            rows.push(row as u32);
        } else {
            *dropped.entry(device).or_default() += 1;
        }
    }
    if dropped.is_empty() {
        return;
    }
    rows.reverse();
    snapshot.events.pick(&rows);
    for counts in &mut snapshot.devices {
        counts.dropped += dropped.get(&counts.device).copied().unwrap_or(0);
    }
}
