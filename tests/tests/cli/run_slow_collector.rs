//! `memtrack run` where events come faster than the collector reads them.

use memtrack_core::event::DeviceId;
use memtrack_tests::run::{Bench, Waiting, assert_is_work, load, stderr_text};
use std::fs;

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

#[test]
fn events_of_devices_are_recorded_when_the_heap_has_used_up_the_room() {
    let bench = Bench::new();
    let mut waiting = Waiting::new(&bench, &["--host", "-o", "run", "--", PLAIN, "burst_and_work", "begin"]);
    waiting.send_to_collector("STOP");
    fs::write(bench.path("begin"), "").expect("it can be written");
    let line = waiting.line();
    waiting.send_to_collector("CONT");
    assert_eq!(line, "done");
    let output = waiting.end();
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, _) = load(&bench.path("run"));
    let heap =
        snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).expect("it was recorded");
    assert!(heap.dropped > 100_000, "there was room for all: {heap:?}");
    assert!(heap.allocations > 400_000, "{heap:?}");
    assert_is_work(&snapshot);
}
