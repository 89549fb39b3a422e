//! Files made to break readers: refused in little time and memory, and nothing in them runs.
#![cfg(unix)]

use memtrack_core::pickle::{Global, Limits, load};
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

/// The pickle machine alone, as a reader of snapshots will use it: what is sound is read, what is not is refused.
#[test]
fn the_machine_tells_sound_from_hostile() {
    let manifest = fs::read(fixture("hostile/manifest.json")).unwrap();
    let manifest: Vec<serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    let files = files();
    let mut complaints = Vec::new();
    for entry in manifest {
        let Some(file) =
            files.iter().find(|file| entry["file"] == file.file_name().unwrap().to_str().unwrap())
        else {
            continue;
        };
        let allowed = [Global::DefaultDict, Global::OrderedDict, Global::Int];
        let outcome = load(fs::File::open(file).unwrap(), &allowed, Limits::default());
        match (entry["expect"].as_str().unwrap(), outcome) {
            ("accept", Err(error)) => complaints.push(format!("{} refused: {error}", file.display())),
            ("reject", Ok(_)) => complaints.push(format!("{} accepted: {}", file.display(), entry["why"])),
            _ => {}
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}
