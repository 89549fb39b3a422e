//! A recording of the caching allocator contains enough to replay its requests.

use memtrack_core::allocator::{Backend, CachingAllocator, Settings, SimulatedMemory};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::{alone, memtrack};
use serde_json::Value;
use std::process::Command;

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);

#[test]
fn replaying_a_recording_reproduces_its_peaks() {
    alone!();
    memtrack_core::start_monitor();
    let memory = SimulatedMemory::new(0, 2048 * MIB);
    let allocator = CachingAllocator::new([memory.clone()], &Settings::default()).unwrap();
    let mut live = Vec::new();
    let mut random = 1u64;
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    for _ in 0..2000 {
        if below(20) < 11 {
            let most = [4096, 2 * MIB, 24 * MIB][below(3) as usize];
            let block = allocator.allocate(1 + below(most), DEVICE, StreamId(below(2)));
            live.push(block.unwrap().address);
        } else if !live.is_empty() {
            let block = live.swap_remove(below(live.len() as u64) as usize);
            if below(8) == 0 {
                allocator.record_stream(block, StreamId(2));
            }
            allocator.free(block).unwrap();
        }
        // The work of other streams is sometimes done and sometimes pending.
        memory.set_events_ready(below(4) > 0);
        if live.len() > 60 {
            live.drain(..30).for_each(|block| allocator.free(block).unwrap());
        }
    }
    let recording = memtrack_core::stop();
    let stats = allocator.statistics(DEVICE).unwrap();
    assert!(stats.num_device_alloc > 20 && stats.num_ooms == 0);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.memtrack");
    recording.save(&path).unwrap();
    let arguments = ["--json", "--set", "", "--set", "expandable_segments:True"];
    let output = Command::new(memtrack()).arg("replay").arg(&path).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &report["devices"][0];
    assert_eq!(device["driver_calls"], false);
    let rows = device["settings"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let defaults = rows.iter().find(|row| row["settings"] == "").unwrap();
    for (key, expected) in [
        ("peak_reserved_bytes", stats.reserved_bytes.all.peak),
        ("peak_allocated_bytes", stats.allocated_bytes.all.peak),
        ("peak_active_bytes", stats.active_bytes.all.peak),
        ("peak_requested_bytes", stats.requested_bytes.all.peak),
        ("num_device_alloc", stats.num_device_alloc),
        ("num_ooms", 0),
    ] {
        assert_eq!(defaults[key].as_i64(), Some(expected), "{key}: {defaults}");
    }
    let expandable = rows.iter().find(|row| row["settings"] != "").unwrap();
    assert!(expandable["peak_reserved_bytes"].as_i64().unwrap() < stats.reserved_bytes.all.peak);
}
