//! Several trackers and monitors at once: each covers a separate part of the program, and none affects another.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free, record_segment_alloc};
use memtrack_core::scope;
use memtrack_core::tracker::MemoryTracker;
use memtrack_tests::alone;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const MIB: u64 = 1 << 20;
const STREAM: StreamId = StreamId(0);

fn options() -> Options {
    Options::new().without_host_heap()
}

fn tracker(device: DeviceId) -> MemoryTracker {
    let mut tracker = MemoryTracker::on(device);
    tracker.start_monitor_with(&options()).unwrap();
    tracker
}

/// Runs an operator that allocates 1 MiB on one device and 2 MiB on another, and frees neither.
fn operator(name: &str) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let _operator = scope::operator(name);
    let address = NEXT.fetch_add(1, Ordering::Relaxed) * MIB;
    record_alloc(DeviceId(0), STREAM, address, MIB);
    record_alloc(DeviceId(1), STREAM, address, 2 * MIB);
}

/// Returns the tracker's operators, and the allocated MiB after each of them.
fn series(tracker: &MemoryTracker) -> Vec<(String, f64)> {
    let stats = tracker.stats();
    stats.memories_allocated.iter().map(|row| (row.operator.to_string(), row.mib)).collect()
}

/// Returns the expected series. Outside a module, an operator's name begins with the dot that would follow a module's name.
fn rows(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    expected.iter().map(|(name, mib)| (format!(".{name}"), *mib)).collect()
}

#[test]
fn overlapping_trackers_cover_their_own_period_and_device() {
    alone!();
    let mut first = tracker(DeviceId(0));
    operator("a");
    let mut second = tracker(DeviceId(1));
    operator("a");
    operator("b");
    // The trackers stop in a different order than they started.
    first.stop();
    operator("a");
    second.stop();
    operator("a");
    // Values count from the start of the session; the numbers in names count from the start of each tracker.
    assert_eq!(series(&first), rows(&[("a_0", 1.0), ("a_1", 2.0), ("b_0", 3.0)]));
    assert_eq!(series(&second), rows(&[("a_0", 4.0), ("b_0", 6.0), ("a_1", 8.0)]));
}

#[test]
fn restarting_a_tracker_clears_it() {
    alone!();
    let mut tracker = tracker(DeviceId(0));
    operator("a");
    tracker.stop();
    tracker.start_monitor_with(&options()).unwrap();
    operator("b");
    // A second start prints a message, and has no effect.
    tracker.start_monitor();
    operator("b");
    tracker.stop();
    tracker.stop();
    assert_eq!(series(&tracker), rows(&[("b_0", 1.0), ("b_1", 2.0)]));
    assert_eq!(memtrack_core::stop().snapshot().devices, [], "no session is left");
}

#[test]
fn a_dropped_tracker_ends_its_share_of_the_session_only() {
    alone!();
    memtrack_core::start_monitor_with(&options()).unwrap();
    drop(tracker(DeviceId(0)));
    operator("a");
    let recording = memtrack_core::stop();
    assert_eq!(recording.snapshot().events.len(), 2);
    operator("b");
    assert_eq!(memtrack_core::stop().snapshot().events.len(), 0);
}

#[test]
fn markers_of_all_iterations_are_kept_and_the_newest_are_in_the_data() {
    alone!();
    let mut tracker = tracker(DeviceId(0));
    for _ in 0..3 {
        let root = scope::root("Net");
        operator("a");
        drop(root);
        operator("b");
    }
    tracker.stop();
    let marks: Vec<_> =
        tracker.marks().into_iter().map(|mark| (mark.name, mark.iteration, mark.op_index)).collect();
    let expected: Vec<_> =
        (0..3).flat_map(|i| [("fw_start", i, 2 * i), ("fw_bw_boundary", i, 2 * i + 1)]).collect();
    assert_eq!(marks, expected);
    let stats = tracker.stats();
    assert_eq!(stats.op_index, 6);
    let newest: Vec<_> = stats.markers.iter().map(|(name, index)| (name.to_string(), *index)).collect();
    assert_eq!(newest, [("fw_start".to_owned(), 4), ("fw_bw_boundary".to_owned(), 5)]);
}

#[test]
fn operators_of_many_threads_are_all_counted() {
    alone!();
    let mut tracker = tracker(DeviceId(0));
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..250).for_each(|_| operator("shared")));
        }
    });
    tracker.stop();
    let rows = series(&tracker);
    let numbered: Vec<String> = (0..1000).map(|number| format!(".shared_{number}")).collect();
    assert!(rows.iter().map(|row| &row.0).eq(&numbered));
    assert_eq!(rows[999].1, 1000.0);
}

#[test]
fn a_tracker_without_a_device_follows_the_first_accelerator_that_reports() {
    alone!();
    let mut tracker = MemoryTracker::new();
    tracker.start_monitor_with(&options()).unwrap();
    record_segment_alloc(DeviceId(3), STREAM, 0, 16 * MIB);
    {
        let _operator = scope::operator("a");
        record_alloc(DeviceId(3), STREAM, 0, 5 * MIB);
    }
    {
        let _operator = scope::operator("b");
        record_free(DeviceId(3), STREAM, 0, 5 * MIB);
    }
    tracker.stop();
    assert_eq!(series(&tracker), rows(&[("a_0", 5.0), ("b_0", 0.0)]));
    let reserved: Vec<f64> = tracker.stats().memories_reserved.iter().map(|row| row.mib).collect();
    assert_eq!(reserved, [16.0, 16.0]);
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn saved_data_opens_in_python_and_in_memtrack() {
    alone!();
    let mut tracker = tracker(DeviceId(0));
    {
        let _root = scope::root("Net");
        operator("a");
        operator("b");
    }
    tracker.stop();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.pickle");
    tracker.save_stats(&path).unwrap();
    let loaded = MemoryTracker::load(&path).unwrap();
    assert_eq!(series(&loaded), series(&tracker));
    let script = "import pickle, sys\n\
                  stats = pickle.load(open(sys.argv[1], 'rb'))\n\
                  print([type(stats).__name__, sorted(stats)])\n\
                  print(dict(stats['memories_allocated']))";
    let output = Command::new("python3").arg("-c").arg(script).arg(&path).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("{0: ('.forward.a_0', 1.0), 1: ('.forward.b_0', 2.0)}"), "{stdout}");
}
