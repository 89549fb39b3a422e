//! Files that a running program writes: snapshots and pictures on request, and dumps when memory runs out.

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::child::run_well;
use memtrack_tests::replay::replay;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// Runs a scenario in a folder whose path is the scenario's argument; returns stdout and stderr.
fn run_in(folder: &Path, scenario: &str) -> (String, String) {
    let output = run_well(CHILD, &[scenario, folder.to_str().unwrap()], folder);
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn open(path: &Path) -> Snapshot {
    Snapshot::open(path, LoadOptions::default()).unwrap().snapshot
}

#[test]
fn dumps_taken_while_threads_record_are_consistent() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), "dump_beside_threads");
    assert_eq!(files(folder.path()).len(), 4, "nothing else is left");
}

#[test]
fn a_dump_without_a_monitor_writes_nothing_and_its_error_gives_advice() {
    run_in(tempfile::tempdir().unwrap().path(), "dump_without_a_monitor");
}

#[test]
fn pictures_show_memory_by_stack() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), "dump_usage");
    for (name, title, place) in
        [("segments.svg", "Segments", Some("segment 0x10000000")), ("memory.svg", "Memory by stream", None)]
    {
        let svg = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(svg.contains("<svg") && svg.contains(title), "{name}");
        for part in ["stream_7", "active_allocated", "place_that_holds", "inactive"].into_iter().chain(place)
        {
            assert!(svg.contains(part), "{name}: {part}");
        }
        assert!(svg.contains("3,145,728 bytes") && svg.contains("1,048,576 bytes"), "{name}");
        assert!(place.is_some() || !svg.contains("segment 0x"), "{name}");
    }
    assert_eq!(files(folder.path()).len(), 2);
}

#[test]
fn the_recorder_writes_dumps_when_memory_runs_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oom.memtrack");
    let output = run_well(CHILD, &["oom", path.to_str().unwrap()], folder.path());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.matches("wrote ").count(), 9, "{stderr}");
    assert!(
        stderr.contains("device 0: 10.0 MiB requested") || stderr.contains("device 0: 8.0 MiB requested"),
        "{stderr}"
    );
    assert!(stderr.contains("1.0 MiB free of 8.0 MiB"), "{stderr}");
    let mut expected: BTreeSet<String> = (1..8).map(|number| format!("oom.{number}.memtrack")).collect();
    expected.extend(["oom.memtrack".to_owned(), "again.pickle.gz".to_owned()]);
    assert_eq!(files(folder.path()), expected);
    for number in 0..8_u64 {
        let name = if number == 0 { "oom.memtrack".to_owned() } else { format!("oom.{number}.memtrack") };
        let snapshot = open(&folder.path().join(name));
        let last = snapshot.events.rows_of(DeviceId(0)).last().unwrap();
        let last = snapshot.events.get(last);
        // The last event of a dump is the failure that caused it.
        assert_eq!((last.action, last.size_bytes, last.address), (Action::Oom, (number + 1) << 20, 1 << 20));
        for device in [0, 1, 2, 3].map(DeviceId) {
            replay(&snapshot, device).assert_blocks_of(&snapshot, device);
        }
    }
    let again = open(&folder.path().join("again.pickle.gz"));
    let row = again.events.action.iter().position(|&action| action == Action::Oom).unwrap();
    assert_eq!((again.events.size_bytes[row], again.events.address[row]), (77, 1 << 20));
}

#[test]
fn a_dump_that_cannot_be_written_is_reported_and_the_program_continues() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_well(CHILD, &["oom_without_a_folder"], folder.path());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("could not be written: ")
            && stderr.contains("/no/such/folder/oom.pickle: No such file"),
        "{stderr}"
    );
    assert!(files(folder.path()).is_empty());
}

#[test]
fn observers_may_panic_allocate_and_dump() {
    let folder = tempfile::tempdir().unwrap();
    let (_, stderr) = run_in(folder.path(), "oom_observers");
    assert_eq!(stderr.matches("an observer of out of memory panicked").count(), 4, "{stderr}");
}

#[test]
fn observers_are_added_and_removed_while_threads_run_out_of_memory() {
    run_well(CHILD, &["oom_observer_storm"], Path::new("."));
}

#[test]
fn a_forked_child_dumps_to_its_own_file_and_has_no_observer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oom.memtrack");
    let output = run_well(CHILD, &["fork_oom", path.to_str().unwrap()], folder.path());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().count(), 1, "only the parent's observer is called: {stdout}");
    let parent: u32 = stdout.trim().parse().unwrap();
    let names = files(folder.path());
    assert_eq!(names.len(), 21, "{names:?}");
    for name in names {
        let snapshot = open(&folder.path().join(&name));
        let of_parent = name == "oom.memtrack";
        assert_eq!(snapshot.meta.pid == parent, of_parent, "{name}");
        assert!(of_parent || name == format!("oom.{}.memtrack", snapshot.meta.pid), "{name}");
        assert!(snapshot.events.action.contains(&Action::Oom), "{name}");
    }
}
