//! The caching allocator handles each workload as PyTorch did, operation by operation: the same addresses, events, statistics,
//! segments and error messages.

use flate2::read::GzDecoder;
use memtrack_core::allocator::workload::{Workload, simulate};
use memtrack_tests::{fixture, oracle};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Returns the text of a file, or of its compressed version (`.gz`).
fn text(path: &Path) -> String {
    if let Ok(text) = fs::read_to_string(path) {
        return text;
    }
    let mut text = String::new();
    let compressed = PathBuf::from(format!("{}.gz", path.display()));
    GzDecoder::new(File::open(compressed).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Parses a line. The text of an internal error of PyTorch, which memtrack need not reproduce, is replaced by a fixed word.
fn comparable(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap();
    if line["error"].as_str().is_some_and(|error| error.contains("INTERNAL ASSERT")) {
        line["error"] = "fails".into();
    }
    line
}

/// Runs all workloads in a folder, and returns their number.
fn check(folder: &Path) -> usize {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.split_once(".workload.jsonl").map(|(name, _)| name.to_owned()))
        .collect();
    names.sort();
    for name in &names {
        let workload = text(&folder.join(format!("{name}.workload.jsonl")));
        let expected = text(&folder.join(format!("{name}.expected.jsonl")));
        let workload = Workload::read(workload.as_bytes(), u64::MAX).unwrap();
        let mut output = Vec::new();
        simulate(&workload, &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        for (number, (actual, reference)) in output.lines().zip(expected.lines()).enumerate() {
            // Only lines whose text differs need parsing.
            if actual != reference {
                assert_eq!(comparable(actual), comparable(reference), "{name}, line {number}");
            }
        }
        assert_eq!(output.lines().count(), expected.lines().count(), "{name}");
    }
    names.len()
}

#[test]
fn workloads_found_by_random_testing_match_pytorch() {
    assert_eq!(check(&fixture("allocator")), 9);
}

#[test]
fn workloads_of_the_reference_data_match_pytorch() {
    assert_eq!(check(&oracle("allocator")), 56);
}
