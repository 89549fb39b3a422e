//! The tracking allocator in difficult programs: threads that end, panics, failures, signals.

use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_tests::child::run_well;
use std::path::Path;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

#[test]
fn memory_passed_between_threads_keeps_event_order() {
    run_well(CHILD, &["hand_over"], Path::new("."));
}

#[test]
fn destructors_of_thread_locals_are_recorded_however_late_they_run() {
    run_well(CHILD, &["thread_local_destructors"], Path::new("."));
}

#[test]
fn ten_thousand_short_threads_leave_only_their_names() {
    run_well(CHILD, &["thread_churn"], Path::new("."));
}

#[test]
fn totals_stay_correct_after_panics() {
    run_well(CHILD, &["panics"], Path::new("."));
}

#[test]
fn reallocations_that_grow_shrink_or_fail_are_tracked() {
    run_well(CHILD, &["reallocations"], Path::new("."));
}

#[test]
fn signals_inside_hooks_do_no_harm() {
    run_well(CHILD, &["signals"], Path::new("."));
}

#[test]
fn threads_with_the_smallest_stacks_record_with_stacks_and_stream() {
    let folder = tempfile::tempdir().unwrap();
    for on in ["off", "on"] {
        run_well(CHILD, &["small_stacks", on, "run.memtrack"], folder.path());
    }
    let (snapshot, report) = Snapshot::load(folder.path().join("run.memtrack")).unwrap();
    assert!(report.complete && snapshot.events.len() >= 80_000);
}

#[test]
fn a_program_that_handles_out_of_memory_continues_and_missing_events_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for size in ["100", "3000", "100000"] {
        let output = run_well(CHILD, &["out_of_memory", size, "run.memtrack"], folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // The message is certain only for the smallest blocks: an allocation of a larger block may fail while memtrack itself
        // can still allocate.
        assert!(stderr.contains("memory ran out") || size != "100", "{stderr}");
    }
}

#[test]
fn an_allocator_that_waits_for_another_thread_is_not_called_under_a_lock() {
    run_well(CHILD, &["waiting_for_another_thread", ""], Path::new("."));
}

#[test]
fn an_allocator_that_waits_is_not_called_under_a_lock_while_streaming() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.memtrack");
    run_well(CHILD, &["waiting_for_another_thread", path.to_str().unwrap()], folder.path());
    let (_, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete && report.lost_bytes == 0, "{report:?}");
}
