//! Each word has one meaning: *allocated* bytes are rounded, as in PyTorch's statistics; *requested* bytes are the sum of a
//! trace's sizes; and a count is the same in text and JSON.
#![cfg(unix)]

use memtrack_core::event::Action;
use memtrack_core::snapshot::Clock;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{empty, event, live};
use memtrack_tests::verbs::{self, text as run};
use serde_json::{Value, json};
use std::path::Path;

/// Writes a snapshot of a hundred blocks of 700 bytes, each rounded to 1,024, in a segment; twenty older blocks are freed first.
fn snapshot(folder: &Path) -> std::path::PathBuf {
    let event = |action: &str, number: u64, time: u64| {
        json!({
            "action": action, "addr": (1u64 << 30) + number * 1024, "size": 700, "stream": 0, "time_us": time,
            "frames": [],
        })
    };
    let frees = (0..20).flat_map(|n| [event("free_requested", n, n), event("free_completed", n, n)]);
    let events: Vec<Value> = frees.chain((0..100).map(|n| event("alloc", n, 100 + n))).collect();
    let block = |number: u64| {
        json!({
            "address": (1u64 << 30) + number * 1024, "size": 1024, "requested_size": 700,
            "state": "active_allocated", "frames": [],
        })
    };
    let segment = json!({
        "device": 0, "address": 1u64 << 30, "total_size": 102_400, "allocated_size": 102_400, "active_size": 102_400,
        "requested_size": 70_000, "stream": 0, "segment_type": "small", "is_expandable": false,
        "blocks": (0..100).map(block).collect::<Vec<_>>(),
    });
    let path = folder.join("snapshot.json");
    std::fs::write(&path, json!({"segments": [segment], "device_traces": [events]}).to_string()).unwrap();
    path
}

#[test]
fn rounded_and_requested_bytes_have_separate_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = &snapshot(folder.path());
    let value = |arguments: &[&str]| verbs::json(arguments, file);
    let summary = &value(&["summary"])["devices"][0];
    assert_eq!((&summary["allocated_bytes"], &summary["requested_bytes"]), (&102_400.into(), &70_000.into()));
    assert_eq!(
        (&summary["peak"]["requested_bytes"], &summary["peak"]["allocated_bytes"]),
        (&70_000.into(), &Value::Null)
    );
    let text = run(&["summary"], file);
    for words in
        ["Allocated      100.0 KiB in 100 blocks; 68.4 KiB requested", "Peak           68.4 KiB requested"]
    {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(value(&["peak"])["devices"][0]["highest"]["requested_bytes"], 70_000);
    assert!(
        run(&["peak"], file)
            .starts_with("Highest requested of device 0: 68.4 KiB requested, 100.0 KiB reserved")
    );
    assert_eq!(value(&["check", "--max-peak", "1GiB"])["peak"]["requested_bytes"], 70_000);
    let verdict = run(&["check", "--max-peak", "1GiB"], file);
    assert!(
        verdict.starts_with("within the limits: peak 68.4 KiB requested, leak 68.4 KiB requested, fr"),
        "{verdict}"
    );
    let top = &value(&["top"])["devices"][0];
    assert_eq!(
        (&top["totals"]["requested_bytes"], &top["totals"]["allocated_bytes"]),
        (&70_000.into(), &Value::Null)
    );
    let text = run(&["top"], file);
    assert!(text.contains("  Requested  ") && text.contains("\nRequested: 68.4 KiB in 100 blocks"), "{text}");
    assert!(!text.contains("Allocated"), "{text}");
    // The option's former name still works.
    assert_eq!(run(&["peak", "--of", "allocated"], file), run(&["peak"], file));
}

#[test]
fn a_replay_counts_requests_alike_in_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = &snapshot(folder.path());
    let replay = ["replay", "--set", "", "--capacity", "1MiB"];
    let text = run(&replay, file);
    let value = verbs::json(&replay, file);
    let device = &value["devices"][0];
    assert!(text.contains("Device 0: 120 requests replayed"), "{text}");
    assert!(text.contains("20 blocks (13.7 KiB) allocated before the first event"), "{text}");
    assert_eq!((&device["requests"], &device["existing_blocks"]), (&120.into(), &20.into()));
    // Small blocks need a segment of 2 MiB, but the device has only 1 MiB: the replay fails at the blocks that are older than
    // the trace, before its first request.
    assert!(text.contains("the start"), "{text}");
    assert_eq!(device["settings"][0]["fails_at_request"], 0);
}

#[test]
fn seconds_count_from_the_start_of_a_recording_or_the_first_event_of_another_file() {
    let folder = tempfile::tempdir().unwrap();
    // The first event is 4 ms after the start, and the peak is 6.6 ms after the start.
    let mut recording = empty();
    recording.clock = Clock { first: (0, 5_000_000_123), last: (1_000_000, 5_001_000_123) };
    for (ticks, address) in [(4_000_000, 4096), (6_600_000, 8192)] {
        recording.events.push(&event(ticks, Action::Alloc, address, 1000));
        recording.blocks.push(live(&event(ticks, Action::Alloc, address, 1000)));
    }
    let moments = |file: &Path| {
        let value = |verb, place: &str| {
            let value = &verbs::json(&[verb], file)["devices"][0][place];
            (value["seconds"].clone(), value["seconds_since"].clone())
        };
        let text: String = ["top", "summary", "peak"].map(|verb| run(&[verb], file)).concat();
        ([value("top", "peak"), value("summary", "peak"), value("peak", "highest")], text)
    };
    for name in ["a.memtrack", "a.pickle", "a.json"] {
        let path = folder.path().join(name);
        recording.save_as(&path, &mut Symbolizer::default()).unwrap();
        let (values, text) = moments(&path);
        assert!(values.iter().all(|value| *value == (json!(0.0066), json!("start"))), "{name}: {values:?}");
        assert_eq!(text.matches("0.007 s after the start").count(), 3, "{text}");
        assert!(!text.contains("first event"), "{text}");
    }
    let (values, text) = moments(&snapshot(folder.path()));
    assert!(values.iter().all(|value| *value == (json!(0.000_199), json!("first_event"))), "{values:?}");
    assert_eq!(text.matches("0.000 s after the first event").count(), 3, "{text}");
}
