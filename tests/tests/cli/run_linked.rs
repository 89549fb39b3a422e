//! `memtrack run` on a program that links memtrack and records itself: a test of this very program.

use crate::{client, pool_blocks};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_tests::child;
use memtrack_tests::run::{Bench, allocations, lines_said, load, said};
use std::process::Output;

/// Runs a test under `memtrack run`, which records to the file of that name.
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

/// Records into a file of its own, or would.
#[test]
#[ignore = "is run by the test below"]
fn an_output_of_its_own() {
    client::begin(0);
    let options = Options::new().without_host_heap().output("own.memtrack");
    memtrack_core::start_monitor_with(&options).expect("the file is written at the end");
    client::alloc(1 << 20).expect("memory");
    memtrack_core::stop();
}

/// A program that links memtrack hears of `memtrack run` only where something of its own is lost.
#[test]
fn a_program_of_its_own_monitor_hears_what_is_lost() {
    let bench = Bench::new();
    let output = run(&bench, "run", an_output_of_its_own);
    let text = said(&output);
    assert!(
        text.contains("own.memtrack is not written") && text.contains("`memtrack run` records"),
        "{text}"
    );
    assert_eq!((lines_said(&output), bench.files()), (2, vec!["run".to_owned()]), "{text}");
    let output = run(&bench, "quiet", blocks_of_a_pool);
    assert_eq!(lines_said(&output), 1, "{}", said(&output));
}
