//! Files crafted to break readers: they are refused with little time and memory, and code in them never runs.
#![cfg(unix)]

use memtrack_core::__pickle::{InputState, load};
use memtrack_tests::{memtrack, oracle, time};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lists the hostile files of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|s| s == "pickle"))
        .collect()
}

/// Runs a verb with 256 MiB of address space and little CPU time. Returns `None` if the verb refused the file, and otherwise a
/// description of the outcome.
fn failure(verb: &str, file: &Path, folder: &Path) -> Option<String> {
    // The command is built here, before the limits apply.
    let memtrack = memtrack();
    let mut command = Command::new("sh");
    let output = time::limited(&mut command, time::READS_SECONDS)
        .args(["-c", "ulimit -v 262144; exec \"$@\"", "sh"])
        .arg(memtrack)
        .arg(verb)
        .arg(file)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = output.status.code() == Some(3) && errors.lines().count() == 1 && output.stdout.is_empty();
    if refused && !errors.contains("panicked") {
        return None;
    }
    Some(format!("{verb} {}: {:?}: {errors}", file.display(), output.status))
}

/// Asserts that `memtrack tracker` refuses every file of a folder.
fn check_tracker(hostile: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let files = files(hostile);
    assert!(files.len() > 100);
    let failures: Vec<_> = files.iter().filter_map(|file| failure("tracker", file, folder.path())).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(!folder.path().join("HOSTILE_RAN").exists(), "code from a pickle was run");
}

/// Asserts that the pickle machine, which the snapshot readers use, reads sound files and refuses all others.
fn check_machine(hostile: &Path) {
    let manifest = fs::read(hostile.join("manifest.json")).unwrap();
    let manifest: Vec<serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    let files = files(hostile);
    assert!(files.len() > 100);
    let mut failures = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let entry = manifest.iter().find(|entry| entry["file"] == name);
        let entry = entry.unwrap_or_else(|| panic!("{} is not in the manifest", file.display()));
        let outcome = load(fs::File::open(file).unwrap(), &InputState::default());
        match (entry["expect"].as_str().unwrap(), outcome) {
            ("accept", Err(error)) => failures.push(format!("{} refused: {error}", file.display())),
            ("reject", Ok(_)) => failures.push(format!("{} accepted: {}", file.display(), entry["why"])),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn the_machine_reads_sound_files_and_refuses_hostile_ones() {
    check_machine(&oracle("hostile"));
}

#[test]
fn the_tracker_refuses_hostile_files() {
    check_tracker(&oracle("hostile"));
}

/// Writes a gzip file of `first` and `times` mebibytes of `repeated`. Each mebibyte compresses to about a kibibyte.
fn gzip_bomb(path: &Path, first: &[u8], repeated: &[u8], times: usize) {
    use std::io::Write;
    let packed = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let megabyte = packed(&repeated.repeat((1 << 20) / repeated.len()));
    let mut bytes = packed(first);
    (0..times).for_each(|_| bytes.extend_from_slice(&megabyte));
    fs::write(path, bytes).unwrap();
}

/// Reading a small file that decompresses to a huge one takes no more memory than docs/CLI.md states.
#[test]
fn compressed_bombs_are_refused_within_the_stated_memory() {
    let folder = tempfile::tempdir().unwrap();
    let bombs: [(&str, &str, &[u8], &[u8]); 5] = [
        ("summary", "numbers.json.gz", b"{\"segments\": [0", b",0"),
        ("summary", "lists.json.gz", b"{\"segments\": [[]", b",[]"),
        ("summary", "numbers.pickle.gz", b"\x80\x04(", b"K\x01"),
        ("summary", "text.json.gz", b"{\"segments\": [\"", b"a"),
        ("cycles", "graph.json.gz", b"[{\"label\": \"", b"a"),
    ];
    for (verb, name, first, repeated) in bombs {
        let path = folder.path().join(name);
        gzip_bomb(&path, first, repeated, 900);
        // docs/CLI.md states a limit of 192 MiB plus 64 times the file's size. The address space is larger: it allows half as
        // much again, for a table that is copied when it grows, and 256 MiB for the program itself.
        let limit_bytes = (192 << 20) + 64 * fs::metadata(&path).unwrap().len();
        let address_space = (limit_bytes * 3 + (256 << 20)) >> 10;
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -v {address_space}; exec \"$@\""), "sh"])
            .arg(memtrack())
            .arg(verb)
            .arg(&path)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{name}: {errors}");
        assert!(errors.lines().count() == 1 && !errors.contains("panicked"), "{name}: {errors}");
    }
}
