//! `memtrack run`: the first message after the program lists the holders of memory, however the program ends.

use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, stderr_text};
use std::process::Command;

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

fn summary(bench: &Bench, name: &str) -> String {
    let output =
        Command::new(memtrack()).args(["summary", name]).current_dir(bench.folder.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_holders_of_a_killed_programs_memory_come_from_the_file() {
    let bench = Bench::new();
    let output = bench.run_until_recorded("killed", &[], &[PLAIN, "signal", "9"], &[]);
    let text = stderr_text(&output);
    let begin = "memtrack: who holds device 0 when the program was killed: 2.0 MiB in 1 block";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("\nmemtrack:   1. 2.0 MiB (100.0 %) by "), "{text}");
    assert!(text.contains("\nmemtrack:   first: look at "), "{text}");
    let recorded = text.find("memtrack: recorded ").expect("the path is printed");
    assert!(text.find("first: ").unwrap() < recorded, "{text}");
    // The recording is complete.
    assert!(summary(&bench, "killed").starts_with("Device 0"));
}

#[test]
fn running_out_of_memory_is_reported_at_once_and_at_the_end() {
    let bench = Bench::new();
    let text = stderr_text(&bench.run(&["-o", "oom", "--", PLAIN, "oom"]));
    let now = "memtrack: out of memory on device 0: 1.00 TiB requested, 16.00 GiB free of 16.00 GiB\n\
               memtrack: who holds device 0 now: 2.0 MiB in 1 block";
    assert!(text.starts_with(now), "{text}");
    assert!(
        text.contains(
            "first: look at what requests 1.00 TiB: a device of 16.00 GiB can never hold that much"
        ),
        "{text}"
    );
    let end = "\nmemtrack: who holds device 0 when memory ran out (1.00 TiB requested, 16.00 GiB free): 2.0 MiB in 1 block";
    assert!(text.contains(end), "{text}");
    assert!(summary(&bench, "oom").starts_with("who holds device 0 when memory ran out"));
}

#[test]
fn the_holders_of_a_successful_program_are_those_at_its_peak() {
    let bench = Bench::new();
    let text = stderr_text(&bench.run(&["-o", "fine", "--", PLAIN, "work"]));
    assert!(text.starts_with("memtrack: who holds device 0 at its peak: "), "{text}");
    assert_eq!(text.matches("who holds").count(), 1, "{text}");
    assert!(!summary(&bench, "fine").contains("who holds"));
}

#[test]
fn a_program_continues_with_its_errno_after_a_failed_heap_request() {
    let bench = Bench::new();
    let text = stderr_text(&bench.run(&["-o", "heap", "--host", "--", PLAIN, "heap_refused"]));
    assert!(text.contains("memtrack: out of memory on host: "), "{text}");
    assert!(text.contains("memtrack: who holds the host heap now: "), "{text}");
}
