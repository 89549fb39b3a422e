//! `memtrack convert` as a user runs it.

use memtrack_tests::{fixture, memtrack};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn convert(from: &Path, to: &Path, more: &[&str]) -> Output {
    Command::new(memtrack()).arg("convert").arg(from).arg(to).args(more).output().unwrap()
}

#[test]
fn formats_and_packings_lead_back_to_the_same_pickle() {
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
fn nothing_is_replaced_without_force_and_names_must_say_a_format() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.pickle");
    fs::write(&target, "mine").unwrap();
    let from = fixture("snapshots/samples/basic-1.pickle");
    let output = convert(&from, &target, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    assert_eq!(convert(&from, &target, &["--force"]).status.code(), Some(0));
    assert_ne!(fs::read(&target).unwrap(), b"mine");
    let output = convert(&from, &folder.path().join("a.txt"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(".memtrack"));
    let output = convert(&from, &folder.path().join("b.pickle"), &["--max-input", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let output = convert(&folder.path().join("missing"), &folder.path().join("b.pickle"), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!folder.path().join("b.pickle").exists());
}
