//! However a program ends, its recording is complete and correct.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::{assert_passed, run, run_well, start, this_program};
use memtrack_tests::replay::{replay, statistics};
use memtrack_tests::time::wait_for;
use std::fs;
use std::path::Path;
use std::process::Command;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// Runs a program that ends in the given way; returns its recording, whether the recording is complete, exit code and stderr.
fn ended(how: &str) -> (Snapshot, bool, Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run(CHILD, &["end", how, path.to_str().unwrap()], folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let (snapshot, report) = Snapshot::load(&path).unwrap_or_else(|error| panic!("{how}: {error}\n{stderr}"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    (snapshot, report.complete, output.status.code(), stderr)
}

#[test]
fn the_recording_has_every_event_after_every_kind_of_exit() {
    for (how, code) in [
        ("stop", Some(0)),
        ("exit", Some(7)),
        ("return", Some(0)),
        ("panic", Some(101)),
        ("abort", None),
        ("exit_beside_threads", Some(0)),
    ] {
        for how in [how.to_owned(), format!("stream_{how}")] {
            let (snapshot, complete, ended_with, stderr) = ended(&how);
            assert_eq!(ended_with, code, "{how}: {stderr}");
            // After an abort, the file of a stream is reported as incomplete. It still has every event, because the panic
            // before the abort wrote them.
            assert_eq!(complete, how != "stream_abort", "{how}");
            let device = replay(&snapshot, DeviceId(0));
            assert_eq!(device.live.len(), 5000, "{how}");
            assert!(device.live.iter().all(|(address, event)| *address == event.size_bytes));
            device.assert_blocks_of(&snapshot, DeviceId(0));
            let counts = statistics(&snapshot, DeviceId(0));
            assert_eq!((counts.recorded, counts.allocated_bytes), (5000, 5000 * 5001 / 2), "{how}");
            assert!(snapshot.events.size_bytes.contains(&333_333), "{how}");
            assert!(!snapshot.stacks.is_empty() && !snapshot.modules.is_empty(), "{how}");
            let others = replay(&snapshot, DeviceId(1));
            others.assert_blocks_of(&snapshot, DeviceId(1));
            assert_eq!(statistics(&snapshot, DeviceId(1)).recorded, others.allocations, "{how}");
        }
    }
}

#[test]
fn a_missing_folder_is_reported_and_the_program_continues() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_well(CHILD, &["end", "missing_folder", "no/such/folder/a.memtrack"], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("could not be written") && stderr.contains("No such file"), "{stderr}");
    assert!(stderr.contains("no/such/folder/a.memtrack"), "{stderr}");
    // With a stream, the start fails at once.
    let output = run(CHILD, &["end", "stream_missing_folder", "no/such/folder/a.memtrack"], folder.path());
    assert!(!output.status.success());
}

/// The limit does not depend on when the writing thread is scheduled: full chunks wait for it in a queue, and a thread that finds
/// the queue full waits, too.
#[test]
fn a_killed_program_loses_at_most_the_queue_and_two_chunks_of_each_thread() {
    const THREADS: u64 = 3;
    const CHUNK_EVENTS: u64 = 4096;
    /// 64 chunks in the queue, and for each thread one chunk that waits for the queue and one that is being filled.
    const MAX_LOST: u64 = (64 + 2 * THREADS) * CHUNK_EVENTS;
    let folder = tempfile::tempdir().unwrap();
    let (path, progress) = (folder.path().join("a.memtrack"), folder.path().join("progress"));
    let recorded = |progress: &Path| -> Vec<u64> {
        let bytes = fs::read(progress).unwrap_or_default();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    for round in 0..4_u64 {
        let _ = fs::remove_file(&progress);
        // An unfinished file would not be replaced by the next run.
        let _ = fs::remove_file(&path);
        let arguments = ["stream_until_killed", path.to_str().unwrap(), progress.to_str().unwrap()];
        let mut child = start(CHILD, &arguments, folder.path());
        // The program is killed at a different point each time; in the last round, it records more than may be lost.
        let enough = 5000 + round * 5 * MAX_LOST / 12;
        wait_for("enough is recorded", || recorded(&progress).iter().sum::<u64>() >= enough);
        child.kill().unwrap();
        child.wait().unwrap();
        let (snapshot, report) = Snapshot::load(&path).unwrap();
        assert!(!report.complete);
        let mut lost = 0;
        for (number, recorded) in recorded(&progress).into_iter().enumerate() {
            let device = DeviceId(number as u16);
            let addresses: Vec<u64> =
                snapshot.events.rows_of(device).map(|row| snapshot.events.address[row]).collect();
            let written = addresses.len() as u64;
            assert_eq!(addresses, (1..=written).collect::<Vec<_>>(), "each once and in order");
            assert!(written <= recorded + 1, "{written} of {recorded}");
            lost += recorded.saturating_sub(written);
        }
        assert!(lost <= MAX_LOST, "{lost} lost of {enough} and more");
        replay(&snapshot, DeviceId(0)).assert_blocks_of(&snapshot, DeviceId(0));
    }
}

/// Partly filled chunks are written, too: twice a second if the writing thread is scheduled in time.
#[test]
fn recorded_events_are_written_while_the_program_is_idle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let mut child = start(CHILD, &["stream_and_wait", path.to_str().unwrap()], folder.path());
    let addresses = || match Snapshot::load(&path) {
        Ok((snapshot, _)) => snapshot.events.address,
        Err(_) => Vec::new(),
    };
    wait_for("every event is in the file", || addresses().len() == 10);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(addresses(), (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_continues_after_panics_contains_each_event_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run_well(CHILD, &["stream_after_panics", path.to_str().unwrap()], folder.path());
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    let expected: u64 = (0..50).map(|round| round * 37).sum();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected.to_string());
    assert_eq!(snapshot.events.len() as u64, expected);
    replay(&snapshot, DeviceId(0)).assert_blocks_of(&snapshot, DeviceId(0));
}

#[test]
fn caught_panics_write_the_recording_rarely_but_the_last_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run(CHILD, &["many_panics", path.to_str().unwrap()], folder.path());
    assert_eq!(output.status.code(), None, "it aborts");
    let files: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    // Writing may take a fiftieth of the time. A busy machine may delay the program between two panics for fifty times as long as
    // a write takes, but not between every pair of panics.
    assert!(files <= 10, "{files} files");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete && snapshot.blocks.iter().any(|block| block.size_bytes == 777));
}

#[test]
fn a_second_session_starts_without_live_blocks() {
    run_well(CHILD, &["restart"], Path::new("."));
}

/// Starts and stops monitors in this test program, in which nothing reports events to the recorder.
fn monitors(options: &Options) {
    for _ in 0..3 {
        memtrack_core::start_monitor_with(options).expect("nothing is streamed");
        drop(memtrack_core::stop());
    }
}

#[test]
#[ignore = "is run by the test below"]
fn monitors_everything() {
    monitors(&Options::new());
}

#[test]
#[ignore = "is run by the test below"]
fn monitors_without_the_heap() {
    monitors(&Options::new().without_host_heap());
}

#[test]
fn a_program_without_an_event_source_gets_one_warning_with_the_missing_line() {
    let stderr = |mut command: Command| assert_passed(&command.output().unwrap()).errors;
    let warning = stderr(this_program(monitors_everything));
    assert_eq!(warning.matches("no event source is installed").count(), 1, "{warning}");
    assert!(
        warning.contains("#[global_allocator]") && warning.contains("TrackingAllocator::system()"),
        "{warning}"
    );
    assert_eq!(stderr(this_program(monitors_without_the_heap)), "");
    assert!(run_well(CHILD, &["no_warning"], Path::new(".")).stderr.is_empty());
}

#[test]
#[ignore = "is run by the test below"]
fn reports_devices_out_of_range() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    for device in [50, 40, 60] {
        record_alloc(DeviceId(device), StreamId(0), 1 << 40, 512);
    }
    eprintln!("the program goes on");
    drop(memtrack_core::stop());
    // The message is not repeated.
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    drop(memtrack_core::stop());
}

/// Hooks print nothing, because the program may hold a lock that the reader of its stderr waits for.
#[test]
fn a_device_that_is_not_recorded_is_reported_at_the_end() {
    let output = this_program(reports_devices_out_of_range).output().unwrap();
    let stderr = assert_passed(&output).errors;
    let expected = "the program goes on\nmemtrack: device 40 is not recorded: at most 31 devices (0 to 30) can be told apart\n";
    assert_eq!(stderr, expected);
}
