//! `memtrack convert` as a user runs it.

use memtrack_tests::{fixture, memtrack};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn convert(from: &Path, to: &Path, more: &[&str]) -> Output {
    Command::new(memtrack()).arg("convert").arg(from).arg(to).args(more).output().unwrap()
}

#[test]
fn formats_and_compressions_lead_back_to_the_same_pickle() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let from = fixture("snapshots/samples/basic-1.pickle");
    let plain = at("plain.pickle");
    assert_eq!(convert(&from, &plain, &[]).status.code(), Some(0));
    let mut last = plain.clone();
    for name in ["a.pickle.gz", "b.memtrack", "c.pickle.zst", "d.memtrack.gz", "e.json.gz", "f.pickle"] {
        let next = at(name);
        let output = convert(&last, &next, &[]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        last = next;
    }
    assert_eq!(fs::read(&plain).unwrap(), fs::read(&last).unwrap());
}

#[test]
fn no_file_is_replaced_without_force_and_names_must_end_in_a_format() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.pickle");
    fs::write(&target, "original").unwrap();
    let from = fixture("snapshots/samples/basic-1.pickle");
    let output = convert(&from, &target, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&target).unwrap(), b"original");
    assert_eq!(convert(&from, &target, &["--force"]).status.code(), Some(0));
    assert_ne!(fs::read(&target).unwrap(), b"original");
    let output = convert(&from, &folder.path().join("a.txt"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(".memtrack"));
    let output = convert(&from, &folder.path().join("b.pickle"), &["--max-input", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let output = convert(&folder.path().join("missing"), &folder.path().join("b.pickle"), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!folder.path().join("b.pickle").exists());
}

#[test]
fn standard_output_gets_the_bytes_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("snapshots/samples/basic-1.pickle");
    for format in ["json", "pickle", "memtrack", "pickle.gz", "json.zst"] {
        let file = folder.path().join(format!("a.{format}"));
        assert_eq!(convert(&from, &file, &[]).status.code(), Some(0));
        let piped = convert(&from, Path::new("-"), &["--to", format]);
        assert_eq!(piped.status.code(), Some(0), "{}", String::from_utf8_lossy(&piped.stderr));
        assert!(piped.stdout == fs::read(&file).unwrap() && piped.stderr.is_empty(), "{format}");
    }
    let named = folder.path().join("no suffix");
    assert_eq!(convert(&from, &named, &["--to", ".json"]).status.code(), Some(0));
    assert_eq!(fs::read(named).unwrap(), fs::read(folder.path().join("a.json")).unwrap());
    for (arguments, expected) in [
        (&[][..], "choose the format for standard output with --to"),
        (&["--to", "xml"], "use pickle, json, memtrack, "),
    ] {
        let output = convert(&from, Path::new("-"), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && output.stdout.is_empty() && error.contains(expected),
            "{error}"
        );
    }
}

/// Half a pickle cannot be read, and an empty snapshot would wrongly suggest that no memory was allocated.
#[test]
fn a_cut_recording_of_a_pytorch_snapshot_is_refused_instead_of_empty() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("a.memtrack");
    assert_eq!(convert(&fixture("snapshots/samples/basic-1.pickle"), &whole, &[]).status.code(), Some(0));
    let bytes = fs::read(&whole).unwrap();
    let first = bytes.windows(4).position(|window| window == b"PYTR").unwrap();
    let cut = folder.path().join("cut.memtrack");
    // Cuts after the empty chunk that announces the snapshot, inside the next chunk, and in the middle of the file.
    for length in [first + 20, first + 60, bytes.len() / 2] {
        fs::write(&cut, &bytes[..length]).unwrap();
        for verb in ["stats", "summary", "trace"] {
            let output = Command::new(memtrack()).arg(verb).arg(&cut).output().unwrap();
            let why = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{verb} {length}: {why}");
            assert!(why.contains("cannot be read in part") && why.lines().count() == 1, "{why}");
            assert!(output.stdout.is_empty());
        }
    }
    // Only the end mark is cut off: the pickle is complete.
    fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    let output = Command::new(memtrack()).arg("stats").arg(&cut).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn a_recording_contains_a_snapshot_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (json, target) = (folder.path().join("a.json"), folder.path().join("a.memtrack"));
    let event = |n: u64| {
        format!(
            r#"{{"action": "alloc", "addr": {n}, "size": {n}, "stream": 0, "time_us": {n}, "frames": []}}"#
        )
    };
    let events: Vec<_> = (1..20_000).map(event).collect();
    fs::write(&json, format!(r#"{{"segments": [], "device_traces": [[{}]]}}"#, events.join(", "))).unwrap();
    assert_eq!(convert(&json, &target, &[]).status.code(), Some(0));
    let bytes = fs::read(&target).unwrap();
    // A chunk's head begins with its kind, its flags and its uncompressed length.
    let lengths = bytes.windows(12).filter(|head| head.starts_with(b"PYTR"));
    let lengths: Vec<u32> = lengths.map(|head| u32::from_le_bytes(head[8..].try_into().unwrap())).collect();
    assert!(lengths.len() > 3 && lengths[0] == 0, "{lengths:?}");
    assert!(lengths.iter().all(|&length| length <= 256 << 10), "{lengths:?}");
}
