//! Dumps on SIGUSR2 and when memory runs low. `recorder_child` checks the files while it runs.

use memtrack_tests::child::run_well;
use memtrack_tests::requirements::GROUPS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Runs a scenario with these arguments; returns what it printed on stderr.
fn run(arguments: &[&str], folder: &Path) -> String {
    String::from_utf8(run_well(CHILD, arguments, folder).stderr).unwrap()
}

#[test]
fn the_newest_dumps_on_signals_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap.memtrack");
    let stderr = run(&["dumps_on_signal", path.to_str().unwrap()], folder.path());
    let kept = ["heap.memtrack", "heap.1.memtrack", "heap.2.memtrack", "heap.3.memtrack", "other.pickle.gz"];
    assert_eq!(files(folder.path()), kept.map(str::to_owned).into());
    assert_eq!(stderr.matches("SIGUSR2: wrote ").count(), 7, "{stderr}");
}

#[test]
fn a_handler_of_the_program_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let stderr = run(&["dumps_on_signal_refused", "heap.memtrack"], folder.path());
    assert!(stderr.is_empty() && files(folder.path()).is_empty(), "{stderr}");
}

#[test]
fn a_dump_is_written_once_per_rise() {
    let [root, folder] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let path = folder.path().join("heap.memtrack");
    let arguments = ["dumps_at_pressure", root.path().to_str().unwrap(), path.to_str().unwrap()];
    let stderr = run(&arguments, folder.path());
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].contains("906.0 MiB of the limit of 953.7 MiB are in use ("), "{stderr}");
    assert!(lines[0].contains("/app); wrote "), "{stderr}");
    assert!(lines[1].contains("a limit of memory was reached ("), "{stderr}");
    assert!(lines[2..].iter().all(|line| line.contains("915.5 MiB of the limit")), "{stderr}");
}

#[test]
fn what_cannot_be_watched_or_written_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    run(&["dumps_bad_input", folder.path().to_str().unwrap()], folder.path());
    assert!(files(folder.path()).is_empty());
}

/// A control group with a limit of 256 MiB, which is removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let made = GROUPS.iter().find_map(|folder| {
            let group = Path::new(folder).join(format!("memtrack-test-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            let limits = ["memory.limit_in_bytes", "memory.max"];
            let is_limited = limits.iter().any(|name| fs::write(group.join(name), "268435456").is_ok());
            is_limited.then_some(group)
        });
        Self(made.expect("the build script has made one"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[cfg_attr(not(control_group), ignore = "needs the right to make a control group")]
fn a_process_in_a_control_group_dumps_before_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let group = Group::new();
    let path = folder.path().join("heap.memtrack");
    let arguments = ["dumps_in_a_group", group.0.to_str().unwrap(), path.to_str().unwrap()];
    let stderr = run(&arguments, folder.path());
    assert!(stderr.contains(" of the limit of 256.0 MiB are in use ("), "{stderr}");
    assert_eq!(files(folder.path()), ["heap.memtrack".to_owned()].into());
}

#[test]
#[cfg_attr(not(pressure_trigger), ignore = "needs a kernel with PSI that accepts a trigger")]
fn the_kernel_accepts_the_trigger() {
    let folder = tempfile::tempdir().unwrap();
    run(&["dumps_with_a_trigger", folder.path().join("heap.memtrack").to_str().unwrap()], folder.path());
}
