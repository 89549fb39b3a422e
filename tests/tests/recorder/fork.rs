//! Forked children record into separate files, start with empty tables, and never wait for a thread that only the parent has.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::run_well;
use std::fs;
use std::path::Path;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");
const OF_PARENT: u64 = 111_111;
const OF_CHILD: u64 = 222_222;

fn events_of(snapshot: &Snapshot, size_bytes: u64) -> usize {
    snapshot.events.size_bytes.iter().filter(|&&size| size == size_bytes).count()
}

/// Runs the scenario with the recording `a.memtrack`; returns the parent's recording, the recording of the child whose process id
/// the scenario prints, and whether the child's recording is complete.
fn recordings(scenario: &str, folder: &Path) -> (Snapshot, Snapshot, bool) {
    let path = folder.join("a.memtrack");
    let output = run_well(CHILD, &[scenario, path.to_str().unwrap()], folder);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let pid: u32 = stdout.trim().parse().unwrap();
    let (parent, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    let (child, report) = Snapshot::load(folder.join(format!("a.memtrack.{pid}"))).unwrap();
    assert_eq!(child.meta.pid, pid);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
    (parent, child, report.complete)
}

#[test]
fn parent_and_child_write_separate_files() {
    let folder = tempfile::tempdir().unwrap();
    let (parent, child, complete) = recordings("fork_files", folder.path());
    assert!(complete);
    assert_eq!((events_of(&parent, OF_PARENT), events_of(&parent, OF_CHILD)), (4, 0));
    assert_eq!((events_of(&child, OF_PARENT), events_of(&child, OF_CHILD)), (0, 2));
}

#[test]
fn sums_of_scopes_start_at_zero_in_a_child() {
    let folder = tempfile::tempdir().unwrap();
    let (parent, child, _) = recordings("fork_files", folder.path());
    let around = |snapshot: &Snapshot| {
        let rows = snapshot.scope_sums_of(DeviceId::HOST).unwrap();
        let inside = rows.filter(|row| snapshot.scopes.place(row.scope).module_path() == "around");
        inside.map(|row| row.allocated_bytes).sum::<u64>()
    };
    // Parent and child both entered the scope before the fork. The program's other allocations in the scope are small.
    let (parent, child) = (around(&parent), around(&child));
    assert!((2 * OF_PARENT..2 * OF_PARENT + 50_000).contains(&parent), "{parent}");
    assert!((OF_CHILD..OF_CHILD + 50_000).contains(&child), "{child}");
}

#[test]
fn a_streaming_parents_child_streams_to_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let (parent, child, complete) = recordings("fork_stream", folder.path());
    assert!(!complete, "_exit cuts a stream");
    assert_eq!((events_of(&parent, OF_PARENT), events_of(&parent, OF_CHILD)), (12_000, 0));
    let of_child = events_of(&child, OF_CHILD);
    assert!(of_child >= 40_000 - 4096, "{of_child}");
    assert_eq!(events_of(&child, OF_PARENT), 0);
}

#[test]
fn two_hundred_forks_with_busy_threads_never_hang() {
    run_well(CHILD, &["fork_storm"], Path::new("."));
}

#[test]
fn a_child_scans_its_own_cycles_and_never_hangs() {
    run_well(CHILD, &["fork_cycles"], Path::new("."));
}

#[test]
fn stop_in_a_child_ends_the_session_it_inherited() {
    run_well(CHILD, &["fork_stop"], Path::new("."));
}

#[test]
fn a_childs_overhead_excludes_its_parents_tables() {
    run_well(CHILD, &["fork_own_bytes"], Path::new("."));
}

#[test]
fn programs_started_by_a_monitored_one_leave_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    run_well(CHILD, &["fork_exec", path.to_str().unwrap()], folder.path());
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    assert_eq!(events_of(&snapshot, OF_PARENT), 40);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
