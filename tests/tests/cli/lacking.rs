//! Files without times or stacks: reports omit unknown values and name the call that records them.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command and returns its standard output, its standard error and its exit code.
fn run(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(memtrack()).args(arguments).output().expect("memtrack can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn untimed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/snapshots/cases/notimes.pickle")
}

/// Collects the paths of all numbers whose keys denote times or ages.
fn times(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let is_time =
                    ["seconds", "_ns", "_us"].iter().any(|end| key.ends_with(end)) || key.contains("_age");
                if is_time && value.is_number() {
                    found.push(format!("{path}/{key} = {value}"));
                }
                times(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| times(value, path, found)),
        _ => {}
    }
}

#[test]
fn reports_on_a_file_without_times_have_no_seconds_or_ages() {
    let folder = tempfile::tempdir().unwrap();
    let original = untimed();
    let converted: Vec<PathBuf> =
        ["a.json", "a.memtrack", "a.pickle"].iter().map(|name| folder.path().join(name)).collect();
    for path in &converted {
        let (_, errors, code) = run(&["convert", original.to_str().unwrap(), path.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{errors}");
    }
    for path in converted.iter().chain([&original]) {
        let file = path.to_str().unwrap();
        for verb in [
            &["summary", file][..],
            &["top", file],
            &["top", "--at", "end", file],
            &["top", "--at", "peak", file],
            &["peak", file],
            &["categories", file],
            &["leaks", file],
            &["ranks", file, file],
            &["check", "--max-peak", "1GiB", file],
        ] {
            let (text, errors, _) = run(verb);
            let all = format!("{text}{errors}");
            for unit in [" s after", " ms", " µs", " ns", "halfway"] {
                assert!(!all.contains(unit), "{verb:?}: {unit:?} in {all}");
            }
            let (text, errors, _) = run(&[verb, &["--json"]].concat());
            if text.is_empty() {
                assert!(errors.contains("no times") || verb[0] == "ranks", "{verb:?}: {errors}");
                continue;
            }
            let mut found = Vec::new();
            times(&serde_json::from_str(&text).unwrap(), "", &mut found);
            assert!(found.is_empty(), "{verb:?}: {found:?}");
        }
    }
    let file = original.to_str().unwrap();
    assert!(run(&["summary", file]).0.contains("50.0 MiB requested, after event 2900\n"));
    assert!(run(&["top", file]).0.contains("Peak: 50.0 MiB live, after event 2900\n"));
    assert!(run(&["top", "--at", "end", file]).0.contains("Ages are unknown"));
    assert_eq!(run(&["categories", "--at", "1ms", file]).2, Some(2));
    let csv = folder.path().join("blocks.csv");
    run(&["convert", file, csv.to_str().unwrap()]);
    let csv = fs::read_to_string(csv).unwrap();
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heads = rows.next().unwrap();
    let timed: Vec<usize> = (0..heads.len()).filter(|&at| heads[at].ends_with("_ns")).collect();
    assert_eq!(timed.len(), 3, "{heads:?}");
    assert!(rows.all(|row| timed.iter().all(|&at| row[at].is_empty())));
}

/// Returns a snapshot of three blocks. The first event has no time; the other two do.
fn partly_timed() -> Value {
    let event = |action: &str, address: u64, time: Option<u64>| {
        let mut event = json!({"action": action, "addr": address, "size": 1 << 20, "stream": 0});
        if let Some(time) = time {
            event["time_us"] = time.into();
        }
        event
    };
    let at = 1_700_000_000_000_000;
    let trace = [
        event("alloc", 1 << 30, None),
        event("alloc", 2 << 30, Some(at)),
        event("alloc", 3 << 30, Some(at + 5000)),
    ];
    json!({"segments": [], "device_traces": [trace]})
}

#[test]
fn known_times_are_shown_where_others_are_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("partly.json");
    fs::write(&path, partly_timed().to_string()).unwrap();
    let file = path.to_str().unwrap();
    let (text, _, _) = run(&["top", file]);
    assert!(text.contains("Peak: 3.0 MiB live, 0.005 s after the first event that has a time"), "{text}");
    let (text, _, _) = run(&["top", "--at", "end", file]);
    assert!(text.contains("Ages are unknown"), "{text}");
}

#[test]
fn the_reason_for_a_missing_trace_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let frames = json!([{"filename": "/w/model.py", "line": 3, "name": "forward"}]);
    let segments = |frames: Value| {
        json!([{"device": 0, "address": 1 << 30, "total_size": 2 << 20, "allocated_size": 2 << 20, "active_size": 2 << 20,
            "requested_size": 2 << 20, "stream": 0, "segment_type": "large", "blocks": [{"address": 1 << 30,
            "size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated", "frames": frames}]}])
    };
    let cases = [
        ("empty.json", json!([]), "recording was not on; call torch.cuda.memory._record_memory_history()"),
        ("off.json", segments(json!([])), "before the model is created"),
        ("stopped.json", segments(frames), "recording was stopped before the snapshot was taken"),
    ];
    for (name, segments, why) in cases {
        let path = folder.path().join(name);
        fs::write(&path, json!({"segments": segments, "device_traces": [[]]}).to_string()).unwrap();
        let file = path.to_str().unwrap();
        for verb in ["summary", "top", "peak", "leaks"] {
            let (text, errors, _) = run(&[verb, file]);
            assert!(errors.contains(why), "{verb} {name}: {errors}");
            assert!(!text.contains("lost by"), "{verb} {name}: {text}");
        }
        let (text, _, _) = run(&["summary", file]);
        assert!(name == "empty.json" || text.contains(why), "{name}: {text}");
        assert_eq!(run(&["leaks", file]).2, Some(3), "{name}");
    }
}
