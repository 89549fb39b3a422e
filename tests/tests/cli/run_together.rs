//! Several `memtrack run` commands with the same output name: each program gets a complete recording, and each command prints the
//! path.

use memtrack_tests::run::{Bench, Waiting, assert_work, stderr_text};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

/// Arguments of `memtrack run` that record into `same`. The program runs until the file `end` exists.
const ARGUMENTS: [&str; 7] = ["--force", "-o", "same", "--", PLAIN, "work_until", "end"];

/// Returns the path of the recording, as the command prints it.
fn recorded(output: &Output) -> PathBuf {
    let text = stderr_text(output);
    assert!(output.status.success(), "{text}");
    let path = text.lines().find_map(|line| line.strip_prefix("memtrack: recorded "));
    path.unwrap_or_else(|| panic!("{text}")).into()
}

#[test]
fn force_does_not_replace_a_recording_in_progress() {
    let bench = Bench::new();
    let first = Waiting::new(&bench, &ARGUMENTS);
    let later = bench.run(&["--force", "-o", "same", "--", PLAIN, "work"]);
    let later_path = recorded(&later);
    let name = later_path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("same.") && bench.files() == ["same", &name], "{name}");
    assert_work(&later_path, true);
    // Without --force the output name is refused, as it is for a finished recording.
    let refused = bench.run(&["-o", "same", "--", PLAIN, "work"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr_text(&refused));
    fs::write(bench.path("end"), "").unwrap();
    assert_eq!(recorded(&first.end()), bench.path("same"));
    assert_work(&bench.path("same"), true);
    // With --force, a finished recording is replaced.
    let again = bench.run(&["--force", "-o", "same", "--", PLAIN, "work"]);
    assert_eq!(recorded(&again), bench.path("same"));
}

#[test]
fn programs_that_start_together_get_a_recording_each() {
    for _ in 0..4 {
        let bench = Bench::new();
        let mut all: Vec<_> = (0..4).map(|_| Waiting::started(&bench, &ARGUMENTS)).collect();
        all.iter_mut().for_each(Waiting::is_ready);
        fs::write(bench.path("end"), "").unwrap();
        let paths: BTreeSet<_> = all.into_iter().map(|one| recorded(&one.end())).collect();
        assert_eq!(paths.len(), 4, "{paths:?}");
        paths.iter().for_each(|path| assert_work(path, true));
        let names = paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        assert_eq!(bench.files(), ["end".to_owned()].into_iter().chain(names).collect::<Vec<_>>());
    }
}
