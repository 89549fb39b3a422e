//! Traces whose times run backwards, as PyTorch writes them after the length of its history was changed. The analysis uses the
//! events in chronological order; PyTorch's text keeps the order of the file.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Returns the events of two blocks of 100 and 50 bytes that are never live at once, and of a 10-byte block that stays live.
fn events() -> Vec<Value> {
    let event = |action: &str, addr: u64, size: u64, time: u64| json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time});
    vec![
        event("alloc", 4096, 100, 1_000),
        event("free_requested", 4096, 100, 2_000),
        event("free_completed", 4096, 100, 2_000),
        event("alloc", 4096, 50, 3_000),
        event("free_requested", 4096, 50, 4_000),
        event("free_completed", 4096, 50, 4_000),
        event("alloc", 8192, 10, 5_000),
    ]
}

fn snapshot(events: &[Value]) -> Value {
    json!({"segments": [], "device_traces": [[], events]})
}

fn run(folder: &Path, events: &[Value], arguments: &[&str]) -> Output {
    let path = folder.join("snapshot.json");
    std::fs::write(&path, snapshot(events).to_string()).unwrap();
    Command::new(memtrack()).arg(arguments[0]).arg(&path).args(&arguments[1..]).output().unwrap()
}

#[test]
fn the_analysis_uses_events_in_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut rotated = events();
    rotated.rotate_left(4);
    for arguments in [
        &["summary", "--json"][..],
        &["peak", "--json"],
        &["check", "--max-peak", "100", "--max-leak", "10"],
        &["top", "--json"],
        &["top", "--at", "peak", "--json"],
        &["top", "--at", "3", "--json"],
    ] {
        let (ordered, rotated) =
            (run(folder.path(), &events(), arguments), run(folder.path(), &rotated, arguments));
        assert_eq!(ordered.status.code(), Some(0), "{arguments:?}");
        let (expected, found) = (String::from_utf8(ordered.stdout), String::from_utf8(rotated.stdout));
        assert_eq!(found.unwrap(), expected.unwrap(), "{arguments:?}");
        // `check` additionally warns that there are few events.
        let warnings = |stderr: Vec<u8>| {
            let text = String::from_utf8(stderr).unwrap();
            text.lines()
                .filter(|line| !line.contains("little to judge by: 7 events"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(warnings(ordered.stderr), "", "{arguments:?}");
        let warning = warnings(rotated.stderr);
        assert!(warning.contains("the events of device 1 are not in order of time"), "{warning}");
        assert_eq!(warning.lines().count(), 1, "{warning}");
    }
}

#[test]
fn pytorchs_text_keeps_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut rotated = events();
    rotated.rotate_left(4);
    let text = |verb: &[&str]| {
        let output = run(folder.path(), &rotated, verb);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&text(&["trace", "--json"])).unwrap();
    let sizes: Vec<_> =
        json["devices"][1]["entries"].as_array().unwrap().iter().map(|e| e["size_bytes"].as_u64()).collect();
    assert_eq!(sizes, [50, 50, 10, 100, 100, 100, 50].map(Some));
    assert!(text(&["trace"]).contains(&format!("{} entries", rotated.len())));
}

#[test]
fn events_with_equal_times_or_without_times_keep_their_order() {
    let load = |events: &[Value]| {
        let text = snapshot(events).to_string();
        Snapshot::open_stream(text.as_bytes(), LoadOptions::default()).unwrap().snapshot
    };
    let mut same = load(&events());
    let before = same.clone();
    assert!(same.order_by_time().is_empty() && same == before);
    let mut untimed = events();
    untimed.rotate_left(4);
    untimed[2].as_object_mut().unwrap().remove("time_us");
    let mut untimed = load(&untimed);
    let before = untimed.clone();
    assert!(untimed.order_by_time().is_empty() && untimed == before);
    let mut rotated = events();
    rotated.rotate_left(4);
    let mut rotated = load(&rotated);
    assert_eq!(rotated.order_by_time().len(), 1);
    assert_eq!(rotated.events, load(&events()).events);
}
