//! `memtrack sizes` as a user runs it: its classes, its lines, and its exit codes.

use memtrack_core::event::{Action, Event};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::memtrack;
use memtrack_tests::snapshots::{event, small};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn sizes(file: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("sizes").arg(file).args(arguments).output().unwrap()
}

fn json(file: &Path, arguments: &[&str]) -> Value {
    let output = sizes(file, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn classes_hold_all_blocks_between_two_powers_of_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.memtrack");
    let mut snapshot = small();
    let stack = snapshot.events.get(0).stack;
    for (number, size_bytes) in [0, 1, 2, 3, 512, 513, 1024, 1025, 70_000].into_iter().enumerate() {
        let address = 0x7e00_0000_0000 + number as u64 * 0x10_0000;
        let alloc = event(2_000 + number as u64, Action::Alloc, address, size_bytes);
        snapshot.events.push(&Event { stack, ..alloc });
    }
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for row in (0..snapshot.events.len()).filter(|&row| snapshot.events.action[row] == Action::Alloc) {
        let size = snapshot.events.size_bytes[row];
        let up_to = (0..).map(|power| 1u64 << power).find(|&up_to| size <= up_to).unwrap();
        let class = expected.entry(up_to).or_default();
        *class = (class.0 + 1, class.1 + size);
    }
    std::fs::write(&file, snapshot.save_to(Vec::new()).unwrap()).unwrap();
    let answer = json(&file, &[]);
    let report = &answer["devices"][0];
    let classes = report["classes"].as_array().unwrap();
    let number = |class: &Value, key: &str| class[key].as_u64().unwrap();
    let found: BTreeMap<u64, (u64, u64)> = classes
        .iter()
        .map(|class| {
            (number(class, "up_to_bytes"), (number(class, "count"), number(class, "requested_bytes")))
        })
        .collect();
    assert_eq!(found, expected);
    assert!(found.len() >= 6, "{found:?}");
    let total = found.values().fold((0, 0), |sum, class| (sum.0 + class.0, sum.1 + class.1));
    assert_eq!((number(&report["totals"], "count"), number(&report["totals"], "requested_bytes")), total);
    let share: f64 = classes.iter().map(|class| class["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-9, "{share}");
}

#[test]
fn rows_name_the_line_that_made_most() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/snapshots/recorded/run.pickle");
    let output = sizes(&file, &["--device", "0", "--at", "peak"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Sizes of the blocks of device 0, at the peak: "), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("8.0 MiB")).unwrap();
    assert!(row.contains("snapshot_run.rs:33 forward"), "{text}");
    let answer = json(&file, &["--device", "0", "--at", "peak"]);
    let class = answer["devices"][0]["classes"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(class["up_to_bytes"], 8 << 20);
    let parts = class["made_by"].as_array().unwrap();
    let bytes: u64 = parts.iter().map(|part| part["requested_bytes"].as_u64().unwrap()).sum();
    assert!(parts.len() == class["made_by_in_all"].as_u64().unwrap() as usize && parts.len() < 4);
    assert_eq!(bytes, class["requested_bytes"].as_u64().unwrap());
}

#[test]
fn moment_that_never_was_is_wrong_usage() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/snapshots/recorded/run.pickle");
    let output = sizes(&file, &["--at", "999999"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(sizes(Path::new("/no/such/file"), &[]).status.code(), Some(3));
}
