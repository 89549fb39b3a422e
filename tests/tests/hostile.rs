//! Files made to break readers: refused in little time and memory, and nothing in them runs.
#![cfg(unix)]

use memtrack_tests::{fixture, memtrack, shared};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every hostile file: the fixtures, and the larger ones when the reference data is there.
fn files() -> Vec<PathBuf> {
    let folders = [Some(fixture("hostile")), shared().map(|shared| shared.join("oracle/hostile"))];
    let entries = folders.into_iter().flatten().flat_map(|folder| fs::read_dir(folder).unwrap());
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|s| s == "pickle"))
        .collect()
}

/// Runs a verb in 256 MiB of address space; returns what is wrong with how it ended.
fn complaint(verb: &str, file: &Path, folder: &Path) -> Option<String> {
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 262144; exec \"$@\"", "sh"])
        .arg(memtrack())
        .arg(verb)
        .arg(file)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let took = start.elapsed();
    let refused = output.status.code() == Some(3) && errors.lines().count() == 1 && output.stdout.is_empty();
    if refused && took < Duration::from_secs(2) && !errors.contains("panicked") {
        return None;
    }
    Some(format!("{verb} {}: {:?} after {took:?}: {errors}", file.display(), output.status))
}

#[test]
fn the_tracker_refuses_hostile_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = files();
    assert!(files.len() > 100);
    let complaints: Vec<_> =
        files.iter().filter_map(|file| complaint("tracker", file, folder.path())).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(!folder.path().join("HOSTILE_RAN").exists(), "code from a pickle was run");
}
