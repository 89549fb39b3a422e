//! The totals of the host heap: exact totals equal those of a counting allocator to the byte, and sampled totals are unbiased.

use memtrack_tests::child::run_well;
use std::path::Path;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

#[test]
fn live_bytes_in_exact_mode_equal_a_counting_allocators_to_the_byte() {
    run_well(CHILD, &["totals_exact"], Path::new("."));
}

#[test]
fn parts_of_snapshots_dropped_on_other_threads_do_not_change_live_totals() {
    run_well(CHILD, &["totals_handed_out"], Path::new("."));
}

#[test]
fn sampled_totals_are_close_for_each_stack_and_sums_are_exact() {
    run_well(CHILD, &["totals_sampled"], Path::new("."));
}

#[test]
fn short_threads_are_sampled_without_bias() {
    run_well(CHILD, &["totals_short_threads"], Path::new("."));
}

#[test]
fn a_load_beyond_the_budget_is_sampled_without_bias_and_every_free_is_found() {
    run_well(CHILD, &["totals_budget"], Path::new("."));
}

#[test]
fn cheap_allocations_are_recorded_exactly_in_every_session() {
    run_well(CHILD, &["totals_cheap"], Path::new("."));
}

#[test]
fn a_thread_that_only_counted_follows_the_rules_of_the_next_session() {
    run_well(CHILD, &["totals_other_rules"], Path::new("."));
}

#[test]
fn blocks_of_devices_beyond_the_bound_are_counted() {
    run_well(CHILD, &["totals_many_of_devices"], Path::new("."));
}

#[test]
fn large_blocks_beyond_the_bound_are_counted() {
    run_well(CHILD, &["totals_many_large"], Path::new("."));
}

#[test]
fn live_blocks_beyond_the_bound_are_sampled() {
    run_well(CHILD, &["totals_many_live"], Path::new("."));
}
