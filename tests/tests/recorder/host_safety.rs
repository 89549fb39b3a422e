//! The allocator under what programs do to it: threads that end, panics, failures, signals.

use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_tests::child::run_well;
use std::path::Path;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

#[test]
fn memory_handed_between_threads_keeps_its_order() {
    run_well(CHILD, &["hand_over"], Path::new("."));
}

#[test]
fn destructors_of_thread_locals_are_recorded_however_late_they_run() {
    run_well(CHILD, &["thread_local_destructors"], Path::new("."));
}

#[test]
fn ten_thousand_short_threads_leave_nothing_but_their_names() {
    run_well(CHILD, &["thread_churn"], Path::new("."));
}

#[test]
fn panics_keep_the_books_right() {
    run_well(CHILD, &["panics"], Path::new("."));
}

#[test]
fn blocks_that_grow_shrink_or_fail_are_followed() {
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
fn a_program_that_handles_out_of_memory_lives_on_and_is_told_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    for size in ["100", "3000", "100000"] {
        let output = run_well(CHILD, &["out_of_memory", size, "run.memtrack"], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // With larger blocks it may be the program's request that fails, and memtrack is not short of anything.
        assert!(said.contains("memory ran out") || size != "100", "{said}");
    }
}

#[test]
fn an_allocator_that_waits_for_another_thread_is_asked_for_nothing_under_a_lock() {
    run_well(CHILD, &["waiting_for_another_thread", ""], Path::new("."));
}

#[test]
fn nor_is_it_while_a_stream_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waiting.memtrack");
    run_well(CHILD, &["waiting_for_another_thread", path.to_str().unwrap()], folder.path());
    let (_, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete && report.lost_bytes == 0, "{report:?}");
}
