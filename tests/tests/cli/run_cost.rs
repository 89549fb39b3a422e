//! The cost of `memtrack run` for a program that never calls the driver. Only the numbers of a release build are meaningful.
#![cfg(not(debug_assertions))]

use memtrack_tests::run::{Bench, stderr_text};
use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of starts with the library, and of starts without it. The two kinds alternate.
const ROUNDS: usize = 200;

fn start(preloaded: Option<&OsStr>) -> Duration {
    let mut command = Command::new("/bin/true");
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begin = Instant::now();
    let output = command.output().expect("it can be started");
    let took = begin.elapsed();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr_text(&output));
    took
}

#[test]
#[ignore = "measures time, on a machine that does nothing else: a bench"]
fn a_program_without_cuda_pays_less_than_a_millisecond() {
    let bench = Bench::new();
    // Makes `memtrack run` write its library to the cache folder.
    assert!(bench.run(&["--", "true"]).status.success());
    let cache = fs::read_dir(bench.path("cache/memtrack")).expect("the library is there");
    let libraries: Vec<_> = cache.map(|entry| entry.expect("an entry").path()).collect();
    let [library] = &libraries[..] else { panic!("one library: {libraries:?}") };

    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        without = without.min(start(None));
        with = with.min(start(Some(library.as_os_str())));
    }
    let added = with.saturating_sub(without);
    println!("added to a start: {added:?}, from {without:?} to {with:?}");
    assert!(added < Duration::from_millis(1), "{without:?} became {with:?}");
}
