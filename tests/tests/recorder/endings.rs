//! However a program ends, its recording is there, whole and true.

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

/// The recording of a program that ended as asked, its exit code, and what it said on stderr.
fn ended(how: &str) -> (Snapshot, bool, Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run(CHILD, &["end", how, path.to_str().unwrap()], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (snapshot, report) = Snapshot::load(&path).unwrap_or_else(|error| panic!("{how}: {error}\n{said}"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    (snapshot, report.complete, output.status.code(), said)
}

#[test]
fn the_recording_is_whole_after_each_ending() {
    for (how, code) in [
        ("stop", Some(0)),
        ("exit", Some(7)),
        ("return", Some(0)),
        ("panic", Some(101)),
        ("abort", None),
        ("exit_beside_threads", Some(0)),
    ] {
        for how in [how.to_owned(), format!("stream_{how}")] {
            let (snapshot, complete, ended_with, said) = ended(&how);
            assert_eq!(ended_with, code, "{how}: {said}");
            // A stream that a panic interrupted and nothing ended is said to be cut, and holds everything all the same.
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
fn a_missing_folder_is_said_clearly_and_the_program_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_well(CHILD, &["end", "missing_folder", "no/such/folder/a.memtrack"], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("could not be written") && said.contains("No such file"), "{said}");
    assert!(said.contains("no/such/folder/a.memtrack"), "{said}");
    // A stream is refused at once.
    let output = run(CHILD, &["end", "stream_missing_folder", "no/such/folder/a.memtrack"], folder.path());
    assert!(!output.status.success());
}

/// However late the thread that writes gets a processor: full chunks wait for it in a queue, and a thread that finds the queue full
/// waits too.
#[test]
fn a_killed_program_loses_at_most_the_queue_and_two_chunks_of_each_thread() {
    const THREADS: u64 = 3;
    const CHUNK_EVENTS: u64 = 4096;
    /// 64 chunks in the queue; of each thread one more there, with which it waits, and one that is being filled.
    const MOST_LOST: u64 = (64 + 2 * THREADS) * CHUNK_EVENTS;
    let folder = tempfile::tempdir().unwrap();
    let (path, progress) = (folder.path().join("a.memtrack"), folder.path().join("progress"));
    let come = |progress: &Path| -> Vec<u64> {
        let bytes = fs::read(progress).unwrap_or_default();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    for round in 0..4_u64 {
        let _ = fs::remove_file(&progress);
        // An unfinished file would stay as it is.
        let _ = fs::remove_file(&path);
        let arguments = ["stream_until_killed", path.to_str().unwrap(), progress.to_str().unwrap()];
        let mut child = start(CHILD, &arguments, folder.path());
        // At a different place each time, at last where more was recorded than may be lost.
        let enough = 5000 + round * 5 * MOST_LOST / 12;
        wait_for("so much is recorded", || come(&progress).iter().sum::<u64>() >= enough);
        child.kill().unwrap();
        child.wait().unwrap();
        let (snapshot, report) = Snapshot::load(&path).unwrap();
        assert!(!report.complete);
        let mut lost = 0;
        for (number, come) in come(&progress).into_iter().enumerate() {
            let device = DeviceId(number as u16);
            let addresses: Vec<u64> =
                snapshot.events.rows_of(device).map(|row| snapshot.events.address[row]).collect();
            let written = addresses.len() as u64;
            assert_eq!(addresses, (1..=written).collect::<Vec<_>>(), "each once and in order");
            assert!(written <= come + 1, "{written} of {come}");
            lost += come.saturating_sub(written);
        }
        assert!(lost <= MOST_LOST, "{lost} lost of {enough} and more");
        replay(&snapshot, DeviceId(0)).assert_blocks_of(&snapshot, DeviceId(0));
    }
}

/// Chunks that are not full are written too, twice a second where nothing keeps the thread that does so from running.
#[test]
fn what_a_program_has_recorded_comes_into_its_file_while_it_does_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let mut child = start(CHILD, &["stream_and_wait", path.to_str().unwrap()], folder.path());
    let addresses = || match Snapshot::load(&path) {
        Ok((snapshot, _)) => snapshot.events.address,
        Err(_) => Vec::new(),
    };
    wait_for("all of it is in the file", || addresses().len() == 10);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(addresses(), (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_goes_on_after_panics_holds_each_event_once() {
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
fn caught_panics_do_not_each_write_the_recording_and_the_last_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run(CHILD, &["many_panics", path.to_str().unwrap()], folder.path());
    assert_eq!(output.status.code(), None, "it aborts");
    let files: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    // One may take a fiftieth of the time: even a machine that holds the program up between two panics, for fifty times as long as
    // one takes, does not do so each time.
    assert!(files <= 10, "{files} files");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete && snapshot.blocks.iter().any(|block| block.size_bytes == 777));
}

#[test]
fn a_second_session_begins_with_nothing_live() {
    run_well(CHILD, &["restart"], Path::new("."));
}

/// Monitors again and again, without an event source: this program has none.
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
fn a_program_without_an_event_source_is_told_once_which_line_is_missing() {
    let said = |mut command: Command| assert_passed(&command.output().unwrap()).errors;
    let warning = said(this_program(monitors_everything));
    assert_eq!(warning.matches("no event source is installed").count(), 1, "{warning}");
    assert!(
        warning.contains("#[global_allocator]") && warning.contains("TrackingAllocator::system()"),
        "{warning}"
    );
    assert_eq!(said(this_program(monitors_without_the_heap)), "");
    assert!(run_well(CHILD, &["no_warning"], Path::new(".")).stderr.is_empty());
}

#[test]
#[ignore = "is run by the test below"]
fn reports_devices_without_number() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    for device in [50, 40, 60] {
        record_alloc(DeviceId(device), StreamId(0), 1 << 40, 512);
    }
    eprintln!("the program goes on");
    drop(memtrack_core::stop());
    // It is not said again.
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    drop(memtrack_core::stop());
}

/// A hook says nothing: the program may hold a lock that whoever reads its messages waits for.
#[test]
fn a_device_that_is_not_recorded_is_told_at_the_end() {
    let output = this_program(reports_devices_without_number).output().unwrap();
    let said = assert_passed(&output).errors;
    let expected = "the program goes on\nmemtrack: device 40 is not recorded: at most 31 devices (0 to 30) can be told apart\n";
    assert_eq!(said, expected);
}
