//! Shared parts of programs that link memtrack's CUDA hook and record themselves on the mock driver: they compare the
//! recording with the mock's counts.
#![allow(dead_code, missing_docs)]

use crate::client;
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::Snapshot;

/// Starts recording everything except the host heap.
pub fn start() {
    assert!(memtrack_core::cuda::hook_is_in_place(), "the hook is in place");
    let options = Options::new().without_host_heap();
    memtrack_core::start_monitor_with(&options).expect("nothing can fail without a file");
}

pub fn snapshot() -> Snapshot {
    memtrack_core::snapshot().expect("something is monitored")
}

/// Returns the bytes of a device's live blocks, and of its segments.
pub fn live_and_segment_bytes(snapshot: &Snapshot, device: DeviceId) -> (u64, u64) {
    let blocks = snapshot.blocks.iter().filter(|block| block.device == device);
    let segments = snapshot.segments.iter().filter(|segment| segment.device == device);
    (blocks.map(|block| block.size_bytes).sum(), segments.map(|segment| segment.size_bytes).sum())
}

/// Asserts that a device's recorded blocks, segments and sums agree with the mock's counts.
#[track_caller]
pub fn assert_agrees_with_mock(device: i32) {
    let snapshot = snapshot();
    let id = if device == -2 { DeviceId::PINNED } else { DeviceId(device as u16) };
    let live = client::live_bytes(device);
    assert_eq!(live_and_segment_bytes(&snapshot, id), (live, live));
    let counts = snapshot.devices.iter().find(|counts| counts.device == id);
    let (allocated, reserved) =
        counts.map_or((0, 0), |counts| (counts.allocated_bytes - counts.freed_bytes, counts.reserved_bytes));
    assert_eq!((allocated, reserved), (live, live));
}

/// Counts a device's events of an action.
pub fn events(snapshot: &Snapshot, device: DeviceId, action: Action) -> usize {
    snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == action).count()
}
