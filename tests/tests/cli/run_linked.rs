//! `memtrack run` on a program that links memtrack and records itself. The program is this test binary, which runs a single test.

use crate::{client, pool_blocks};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_tests::child;
use memtrack_tests::run::{Bench, allocations, count_stderr_lines, load, stderr_text};
use std::process::Output;

/// Runs a test under `memtrack run`, which writes to `recording`.
fn run(bench: &Bench, recording: &str, test: impl Fn()) -> Output {
    let test = child::this_program(test);
    let mut command = bench.command();
    command.args(["-o", recording, "--"]).arg(test.get_program()).args(test.get_args());
    let output = command.output().expect("memtrack can be started");
    child::assert_passed(&output);
    output
}

#[test]
#[ignore = "is run by the tests below"]
fn blocks_of_a_pool() {
    pool_blocks::blocks();
}

#[test]
fn a_program_that_links_memtrack_is_recorded_once() {
    let bench = Bench::new();
    run(&bench, "linked", blocks_of_a_pool);
    let (snapshot, report) = load(&bench.path("linked"));
    assert!(report.complete && snapshot.blocks.is_empty() && snapshot.segments.is_empty());
    assert_eq!(allocations(&snapshot, DeviceId(0)), 4);
    assert_eq!(bench.files(), ["linked"]);
}

/// Starts a monitor with an output file, which `memtrack run` overrides.
#[test]
#[ignore = "is run by the test below"]
fn monitors_into_a_file() {
    client::begin(0);
    let options = Options::new().without_host_heap().output("monitor.memtrack");
    memtrack_core::start_monitor_with(&options).expect("the file is written at the end");
    client::alloc(1 << 20).expect("memory");
    memtrack_core::stop();
}

/// A program that links memtrack gets a message from `memtrack run` only when one of its outputs is lost.
#[test]
fn a_program_with_a_monitor_gets_a_message_about_its_lost_output() {
    let bench = Bench::new();
    let output = run(&bench, "run", monitors_into_a_file);
    let text = stderr_text(&output);
    assert!(
        text.contains("monitor.memtrack is not written") && text.contains("`memtrack run` records"),
        "{text}"
    );
    assert_eq!((count_stderr_lines(&output), bench.files()), (2, vec!["run".to_owned()]), "{text}");
    let output = run(&bench, "quiet", blocks_of_a_pool);
    assert_eq!(count_stderr_lines(&output), 1, "{}", stderr_text(&output));
}
