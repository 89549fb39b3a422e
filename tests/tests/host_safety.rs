//! The allocator under what programs do to it: threads that end, panics, failures, signals.

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
