//! Recording writes into no file but its own, and a program outlives the trouble of its stream.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::run_well;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// Runs a scenario that waits until it has printed `words` on stderr; all that it printed there, and how it ended.
fn run_until(arguments: &[&str], words: &str, folder: &Path) -> (String, Output) {
    let mut command = Command::new(CHILD);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    // It ends by itself when it waits for too long.
    while !text.contains(words) && stderr.read_line(&mut text).unwrap() > 0 {}
    drop(child.stdin.take());
    stderr.read_to_string(&mut text).unwrap();
    (text, child.wait_with_output().unwrap())
}

#[test]
fn a_program_that_closes_all_files_keeps_its_own_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (path, own) = (folder.path().join("a.memtrack"), folder.path().join("own.txt"));
    let arguments = ["closed_files", path.to_str().unwrap(), own.to_str().unwrap()];
    let (said, output) = run_until(&arguments, "the program has closed the file", folder.path());
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(fs::read_to_string(own).unwrap(), "the program's own");
    assert_eq!(said.matches("the program has closed the file").count(), 1, "{said}");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && !report.damaged);
    assert!(snapshot.events.rows_of(DeviceId(0)).count() >= 10_000);
}

#[test]
fn a_full_disk_ends_the_stream_and_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let arguments = ["full_disk", path.to_str().unwrap()];
    let (said, output) = run_until(&arguments, "failed and ends here", folder.path());
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    assert_eq!(said.matches("failed and ends here").count(), 1, "{said}");
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && snapshot.events.len() > 10_000);
}

#[test]
fn a_disk_that_takes_nothing_holds_up_only_who_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let output = run_well(CHILD, &["stalled", path.to_str().unwrap()], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("its disk took nothing for 10 s").count(), 1, "{said}");
}

#[test]
fn a_caught_panic_waits_a_second_for_a_disk_that_takes_nothing_and_the_next_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let output = run_well(CHILD, &["panics_while_stalled", path.to_str().unwrap()], folder.path());
    let text = String::from_utf8(output.stdout).unwrap();
    let took: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let (first, others) = took.split_first().unwrap();
    // The first waits all its time, or nothing was stalled. Were the others to wait, none of them could be quicker.
    assert!(*first >= 1000 && others.iter().any(|took| *took < 1000), "{took:?} ms");
}

#[test]
fn only_so_many_forked_processes_leave_files_and_the_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // Relative: the children go to another folder.
    let output = run_well(CHILD, &["fork_many", "a.memtrack"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("10 forked processes left no recording: only the first 100"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 101);
    for entry in fs::read_dir(folder.path()).unwrap() {
        assert!(!Snapshot::load(entry.unwrap().path()).unwrap().0.events.is_empty());
    }
}

#[test]
fn a_message_neither_ends_nor_holds_up_a_program_whose_stderr_nobody_reads() {
    let output = run_well(CHILD, &["deaf_stderr"], Path::new("."));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
}

#[test]
fn everything_that_is_said_goes_through_one_function() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core");
    let packages = fs::read_dir(&core).unwrap().map(|entry| entry.unwrap().path());
    // The fuzzers and benchmarks are programs of their own.
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
            let says = ["eprintln!", "eprint!", "stderr()", "println!"];
            let text = fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            // What unit tests print is for whoever runs them.
            let code = code.take_while(|line| !line.starts_with("#[cfg(test)]"));
            let direct: Vec<&str> = code.filter(|line| says.iter().any(|says| line.contains(says))).collect();
            // What libtest is to capture with the rest of what a test prints can only go through its macros.
            let of_tests =
                ["testing/limits.rs", "accounts/printing.rs"].iter().any(|file| path.ends_with(file));
            let is_the_one = path.ends_with("message.rs") || of_tests;
            assert!(is_the_one || direct.is_empty(), "{}: {direct:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 200);
}
