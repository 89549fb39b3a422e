//! The texts of `stats`, `trace`, `segments`, `memory` and `compare` equal PyTorch's, byte for byte: for the fixtures and
//! the reference data, and for real snapshots where they exist beside the checkout.

use flate2::read::GzDecoder;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::viz::{Stats, compare_folded, memory_folded, segments_folded, trace};
use memtrack_tests::{fixture, oracle, shared};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

const VERBS: [&str; 4] = ["stats", "trace", "segments", "memory"];

fn open(path: &Path) -> PytorchSnapshot {
    let loaded = Snapshot::open(path, LoadOptions::default());
    let loaded = loaded.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    PytorchSnapshot::try_from(loaded.snapshot).unwrap()
}

fn text(snapshot: &PytorchSnapshot, verb: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match verb {
        "stats" => Stats::of(snapshot).write_text(&mut out).unwrap(),
        "trace" => drop(trace(snapshot, &mut out).unwrap()),
        "segments" => drop(segments_folded(snapshot, &mut out).unwrap()),
        _ => drop(memory_folded(snapshot, &mut out).unwrap()),
    }
    out
}

/// Reads a stored text, compressed or not.
fn stored(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if path.extension().is_none_or(|suffix| suffix != "gz") {
        return bytes;
    }
    let mut text = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
    text
}

/// Returns the sorted files of a folder, or none if the folder does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().split(".pickle").next().unwrap().to_owned()
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.to_string_lossy().contains(".pickle")).collect()
}

/// Checks one snapshot against the `expected.json` beside its texts, and returns the number of equal texts. Where PyTorch
/// raised an exception instead of writing a text, any text from memtrack is accepted.
fn check(snapshot: &Path, expected: &Path, wrong: &mut Vec<String>) -> usize {
    let folder = expected.parent().unwrap();
    let expected: Value = serde_json::from_slice(&fs::read(expected).unwrap()).unwrap();
    let snapshot_name = snapshot;
    let snapshot = open(snapshot);
    let mut equal = 0;
    for verb in VERBS {
        let actual = text(&snapshot, verb);
        match expected[verb]["file"].as_str() {
            Some(file) if stored(&folder.join(file)) == actual => equal += 1,
            Some(_) => wrong.push(format!("{verb} {}", snapshot_name.display())),
            None => {}
        }
    }
    equal
}

/// Checks `NAME.pickle` against `NAME/expected.json`, for every snapshot in a folder.
fn check_folder(folder: &Path, wrong: &mut Vec<String>) -> usize {
    let expected = |path: &PathBuf| folder.join(stem(path)).join("expected.json");
    let pairs = snapshots(folder).into_iter().map(|path| (expected(&path), path));
    pairs
        .filter(|(expected, _)| expected.exists())
        .map(|(expected, path)| check(&path, &expected, wrong))
        .sum()
}

/// Checks `NAME.pickle` against `NAME.VERB.txt` or `NAME.VERB.folded` in the same folder.
fn check_samples(folder: &Path, wrong: &mut Vec<String>) -> usize {
    let mut equal = 0;
    for path in snapshots(folder) {
        let snapshot = open(&path);
        for (verb, suffix) in VERBS.into_iter().zip(["txt", "txt", "folded", "folded"]) {
            let file = folder.join(format!("{}.{verb}.{suffix}", stem(&path)));
            let Ok(expected) = fs::read(file) else { continue };
            let actual = text(&snapshot, verb);
            // Some of the expected texts were saved from `print`, which adds a line break.
            if expected == actual || expected == [&actual[..], b"\n"].concat() {
                equal += 1;
            } else {
                wrong.push(format!("{verb} {}", path.display()));
            }
        }
    }
    equal
}

/// Returns the lists of addresses as sets, because PyTorch writes them in hash order, and the other lines as text.
fn lists_and_lines(text: &[u8]) -> (Vec<(String, BTreeSet<String>)>, String) {
    let text = String::from_utf8_lossy(text).into_owned();
    let (mut lists, mut lines) = (Vec::new(), String::new());
    for line in text.lines() {
        match line.split_once(" = [") {
            Some((name @ ("only_before" | "only_after"), rest)) => {
                let addresses = rest.trim_end_matches(']').split(", ").filter(|a| !a.is_empty());
                lists.push((name.to_owned(), addresses.map(str::to_owned).collect()));
            }
            _ => lines += &format!("{line}\n"),
        }
    }
    (lists, lines)
}

fn check_pair(before: &Path, after: &Path, stdout: &[u8], folded: &[u8]) -> bool {
    let mut actual = Vec::new();
    compare_folded(&open(before), &open(after), &mut actual).unwrap();
    lists_and_lines(&actual) == lists_and_lines(&[stdout, folded].concat())
}

/// Checks the pairs in a folder. The snapshots of each pair are in one of `places`.
fn check_pairs(folder: &Path, places: &[PathBuf], wrong: &mut Vec<String>) -> usize {
    let mut equal = 0;
    for pair in files(folder) {
        let expected: Value = serde_json::from_slice(&fs::read(pair.join("expected.json")).unwrap()).unwrap();
        let find = |which: &str| {
            let name = expected[which].as_str().unwrap();
            places.iter().map(|place| place.join(name)).find(|path| path.exists()).unwrap()
        };
        let folded = stored(&pair.join(expected["folded"]["file"].as_str().unwrap()));
        let stdout = stored(&pair.join(expected["stdout"]["file"].as_str().unwrap()));
        if check_pair(&find("before"), &find("after"), &stdout, &folded) {
            equal += 1;
        } else {
            wrong.push(pair.display().to_string());
        }
    }
    equal
}

#[test]
fn texts_of_the_samples_equal_pytorchs() {
    let (samples, mut wrong) = (fixture("snapshots/samples"), Vec::new());
    let equal = check_samples(&samples, &mut wrong);
    let read = |file: &str| fs::read(samples.join(file)).unwrap();
    let (stdout, folded) = (read("basic-1-vs-2.compare.stdout.txt"), read("basic-1-vs-2.compare.folded"));
    let [before, after] = ["basic-1.pickle", "basic-2.pickle"].map(|name| samples.join(name));
    if !check_pair(&before, &after, &stdout, &folded) {
        wrong.push("the pair".into());
    }
    assert!(wrong.is_empty(), "{equal} equal, not: {wrong:#?}");
    assert!(equal > 25, "{equal}");
}

#[test]
fn texts_of_the_reference_snapshots_equal_pytorchs() {
    let (mut equal, mut wrong) = (0, Vec::new());
    for folder in ["snapshots/synth", "snapshots-big"] {
        equal += check_folder(&oracle(folder), &mut wrong);
    }
    for profile in files(&oracle("profiles")) {
        let expected = profile.join("viz/expected.json");
        if let Some(snapshot) = snapshots(&profile).first().filter(|_| expected.exists()) {
            equal += check(snapshot, &expected, &mut wrong);
        }
    }
    for writer in snapshots(&oracle("pickles")) {
        equal += check(&writer, &oracle("pickles/expected/expected.json"), &mut wrong);
    }
    let pairs = check_pairs(&oracle("snapshots/compare"), &[oracle("snapshots/synth")], &mut wrong);
    assert!(wrong.is_empty(), "{equal} equal, not: {wrong:#?}");
    assert!(equal > 300 && pairs == 4, "{equal} {pairs}");
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn texts_of_real_snapshots_equal_pytorchs() {
    let (snapshots, mut wrong) = (shared().join("oracle/snapshots"), Vec::new());
    let equal = check_folder(&snapshots.join("real"), &mut wrong);
    let places = ["synth", "real"].map(|place| snapshots.join(place));
    let pairs = check_pairs(&snapshots.join("compare"), &places, &mut wrong);
    assert!(wrong.is_empty(), "{equal} equal, not: {wrong:#?}");
    assert!(equal > 45 && pairs == 5, "{equal} {pairs}");
}
