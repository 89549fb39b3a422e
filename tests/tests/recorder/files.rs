//! The recorder writes only to its own file, and errors of the stream do not end the program.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::run_well;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// Runs a scenario that prints `words` on stderr and then waits, and lets it end; returns its stderr and its output.
fn run_until(arguments: &[&str], words: &str, folder: &Path) -> (String, Output) {
    let mut command = Command::new(CHILD);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    // The scenario ends by itself if it waits too long.
    while !text.contains(words) && stderr.read_line(&mut text).unwrap() > 0 {}
    drop(child.stdin.take());
    stderr.read_to_string(&mut text).unwrap();
    (text, child.wait_with_output().unwrap())
}

#[test]
fn a_program_that_closes_all_files_keeps_its_own_files_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (path, program_file) = (folder.path().join("a.memtrack"), folder.path().join("own.txt"));
    let arguments = ["closed_files", path.to_str().unwrap(), program_file.to_str().unwrap()];
    let (stderr, output) = run_until(&arguments, "the program has closed the file", folder.path());
    assert!(output.status.success(), "{}: {stderr}", output.status);
    assert_eq!(fs::read_to_string(program_file).unwrap(), "the program's own");
    assert_eq!(stderr.matches("the program has closed the file").count(), 1, "{stderr}");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && !report.damaged);
    assert!(snapshot.events.rows_of(DeviceId(0)).count() >= 10_000);
}

#[test]
fn a_full_disk_ends_the_stream_but_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let arguments = ["full_disk", path.to_str().unwrap()];
    let (stderr, output) = run_until(&arguments, "failed and ends here", folder.path());
    assert!(output.status.success(), "{}: {stderr}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    assert_eq!(stderr.matches("failed and ends here").count(), 1, "{stderr}");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && snapshot.events.len() > 10_000);
}

#[test]
fn a_stalled_disk_blocks_only_the_writing_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let output = run_well(CHILD, &["stalled", path.to_str().unwrap()], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("its disk accepted no data for 10 s").count(), 1, "{stderr}");
}

#[test]
fn only_the_first_caught_panic_waits_a_second_for_a_stalled_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let output = run_well(CHILD, &["panics_while_stalled", path.to_str().unwrap()], folder.path());
    let text = String::from_utf8(output.stdout).unwrap();
    let times_ms: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let (first, others) = times_ms.split_first().unwrap();
    // The first panic must wait for the full second: otherwise the disk was not stalled, and the test shows nothing. If each of
    // the other panics waited too, none of them would be faster than that.
    assert!(*first >= 1000 && others.iter().any(|time| *time < 1000), "{times_ms:?} ms");
}

#[test]
fn only_100_forked_processes_leave_files_and_the_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // The path is relative: the children change their working directory.
    let output = run_well(CHILD, &["fork_many", "a.memtrack"], folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("10 forked processes left no recording: only the first 100"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 101);
    for entry in fs::read_dir(folder.path()).unwrap() {
        assert!(!Snapshot::load(entry.unwrap().path()).unwrap().0.events.is_empty());
    }
}

#[test]
fn a_message_neither_ends_nor_blocks_a_program_whose_stderr_is_not_read() {
    let output = run_well(CHILD, &["unread_stderr"], Path::new("."));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
}

#[test]
fn every_message_is_printed_by_one_function() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core");
    let packages = fs::read_dir(&core).unwrap().map(|entry| entry.unwrap().path());
    // Fuzzers and benchmarks are separate programs, and are not checked.
    let packages = packages.filter(|path| path.join("Cargo.toml").is_file() && !path.ends_with("fuzz"));
    let mut folders: Vec<_> = packages.chain([core.clone()]).map(|package| package.join("src")).collect();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let printers = ["eprintln!", "eprint!", "stderr()", "println!"];
            let text = fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            // Unit tests may print.
            let code = code.take_while(|line| !line.starts_with("#[cfg(test)]"));
            let direct: Vec<&str> =
                code.filter(|line| printers.iter().any(|printer| line.contains(printer))).collect();
            // These two files print on behalf of tests. They use the print macros, because libtest captures no other output.
            let of_tests =
                ["testing/verdict.rs", "accounts/printing.rs"].iter().any(|file| path.ends_with(file));
            let may_print = path.ends_with("message.rs") || of_tests;
            assert!(may_print || direct.is_empty(), "{}: {direct:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 200);
}
