//! Blocks allocated before the trace began: reports name the line that freed them or, if the free event carries the allocation's
//! stack, the line that allocated them.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const TRAIN: &str = "/home/kim/proj/train.py";

fn frames(name: &str, line: u32) -> Value {
    json!([
        {"name": "at::_ops::add_Tensor::call(at::Tensor const&)", "filename": "??", "line": 0},
        {"name": name, "filename": TRAIN, "line": line}
    ])
}

fn event(action: &str, address: u64, size: u64, time: u64, frames: &Value) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames})
}

/// Returns a snapshot with a segment in which 1,024 bytes, allocated before the trace and without a stack, are live at the end of
/// the trace.
fn snapshot(events: &[Value]) -> Value {
    let block = |state: &str, size: u64| json!({"size": size, "requested_size": size, "state": state});
    let segment = json!({
        "device": 0, "address": 1 << 20, "total_size": 8192, "stream": 0, "segment_type": "small",
        "allocated_size": 1024, "active_size": 1024,
        "blocks": [block("active_allocated", 1024), block("inactive", 7168)]
    });
    json!({"segments": [segment], "device_traces": [events]})
}

/// Returns a snapshot in which `step` frees 512 bytes from before the trace and `evaluate` frees 256; each free event carries the
/// stack at which the memory was freed.
fn with_free_stacks() -> Value {
    let (add, step, evaluate) = (frames("add", 3), frames("step", 73), frames("evaluate", 90));
    snapshot(&[
        event("alloc", 5 << 20, 64, 1, &add),
        event("free_requested", (1 << 20) + 2048, 512, 2, &step),
        event("free_completed", (1 << 20) + 2048, 512, 2, &step),
        event("free_requested", (1 << 20) + 4096, 256, 3, &evaluate),
        event("free_completed", (1 << 20) + 4096, 256, 3, &evaluate),
        event("free_requested", 5 << 20, 64, 4, &step),
        event("free_completed", 5 << 20, 64, 4, &step),
    ])
}

/// Returns a snapshot with this many blocks, plus a 512-byte block from before the trace. Each free event carries the stack of the
/// block's allocation.
fn with_allocation_stacks(blocks: u64) -> Value {
    let pair = |number: u64| {
        let stack = frames("work", 100 + number as u32);
        let at = |action, time| event(action, (9 + number) << 20, 8, time, &stack);
        [at("alloc", 10 + number), at("free_requested", 40 + number), at("free_completed", 40 + number)]
    };
    let mut events: Vec<Value> = (0..blocks).flat_map(pair).collect();
    events.sort_by_key(|event| event["time_us"].as_u64());
    events.push(event("free_requested", (1 << 20) + 2048, 512, 99, &frames("load", 7)));
    snapshot(&events)
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(memtrack()).current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn save(snapshot: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.json"), snapshot.to_string()).unwrap();
    folder
}

fn rows(folder: &Path, arguments: &[&str]) -> Vec<(String, u64)> {
    let value: Value = serde_json::from_str(&run(folder, &[arguments, &["--json"]].concat())).unwrap();
    let row = |row: &Value| {
        let name = row["name"].as_str().or(row["why_no_name"].as_str()).unwrap();
        (name.to_owned(), row["requested_bytes"].as_u64().unwrap())
    };
    value["devices"][0]["rows"].as_array().unwrap().iter().map(row).collect()
}

fn owned(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect()
}

#[test]
fn older_blocks_are_distinguished_by_the_line_that_freed_them() {
    let folder = save(&with_free_stacks());
    let older = "allocated before the first event";
    let (plain, step, evaluate) = (
        older.to_owned(),
        format!("{older}, freed at train.py:73 step"),
        format!("{older}, freed at train.py:90 evaluate"),
    );
    for by in ["line", "python", "frame", "stack"] {
        let found = rows(folder.path(), &["top", "--at", "peak", "--by", by, "a.json"]);
        let expected = [(&plain[..], 1024), (&step[..], 512), (&evaluate[..], 256)];
        assert_eq!(found[..3], owned(&expected), "{by}");
        assert_eq!((found.len(), found[3].1), (4, 64), "{by}");
    }
    assert_eq!(rows(folder.path(), &["peak", "a.json"])[1], (step.clone(), 512));
    let in_file = format!("{older}, freed in {TRAIN}");
    assert_eq!(rows(folder.path(), &["top", "--at", "peak", "--by", "file", "a.json"])[1], (in_file, 768));
    // Rows that are not based on stacks, such as operators and sizes, do not show where these blocks were freed.
    let operators = rows(folder.path(), &["top", "--at", "peak", "--by", "operator", "a.json"]);
    assert!(operators.iter().all(|(name, _)| !name.contains("freed")), "{operators:?}");
    let value: Value = serde_json::from_str(&run(
        folder.path(),
        &["top", "--at", "peak", "--by", "line", "--json", "a.json"],
    ))
    .unwrap();
    let rows = &value["devices"][0]["rows"];
    assert_eq!(rows[1]["freed_at"], json!({"function": "step", "file": TRAIN, "line": 73, "address": null}));
    assert!(rows[0]["freed_at"].is_null() && rows[3]["freed_at"].is_null());
    let text = run(folder.path(), &["top", "--at", "peak", "--by", "line", "a.json"]);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert!(lines.contains(&"   freed at train.py:73 step"), "{text}");
}

#[test]
fn the_summary_names_the_line_that_freed_the_largest_group() {
    let (step, add) = (frames("step", 73), frames("add", 3));
    let folder = save(&snapshot(&[
        event("alloc", 5 << 20, 64, 1, &add),
        event("free_requested", 5 << 20, 64, 4, &step),
        event("free_requested", (1 << 20) + 2048, 1 << 30, 5, &step),
    ]));
    let text = run(folder.path(), &["summary", "a.json"]);
    let words = "the largest group at the peak, 1.00 GiB (100.0 %), was allocated before the first event, freed at train.py:73 step";
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_free_that_carries_the_stack_of_the_allocation_names_its_line() {
    let folder = save(&with_allocation_stacks(8));
    let found = rows(folder.path(), &["top", "--at", "peak", "--by", "line", "a.json"]);
    assert_eq!(found[..2], owned(&[("allocated before the first event", 1024), ("train.py:7 load", 512)]));
    // Frees on only seven lines do not show that the events carry the stacks of allocations: each of these lines may really
    // free the blocks that it allocated.
    let folder = save(&with_allocation_stacks(7));
    let found = rows(folder.path(), &["top", "--at", "peak", "--by", "line", "a.json"]);
    assert_eq!(found[0], ("allocated before the first event".into(), 1536));
}

#[test]
fn a_diff_groups_all_older_blocks_because_the_freeing_line_depends_on_the_end_of_the_trace() {
    let folder = save(&with_free_stacks());
    // The same memory, but the trace ends before `evaluate` frees its part.
    let mut shorter = with_free_stacks();
    let add = |snapshot: &mut Value, size: u64| {
        let block = json!({"size": size, "requested_size": size, "state": "active_allocated"});
        let segment =
            json!({"device": 0, "address": 7 << 20, "total_size": size, "stream": 0, "blocks": [block]});
        snapshot["segments"].as_array_mut().unwrap().push(segment);
    };
    let events = shorter["device_traces"][0].as_array_mut().unwrap();
    events.retain(|event| event["size"] != 256);
    add(&mut shorter, 256);
    std::fs::write(folder.path().join("b.json"), shorter.to_string()).unwrap();
    for by in ["line", "stack"] {
        let value: Value =
            serde_json::from_str(&run(folder.path(), &["diff", "a.json", "b.json", "--by", by, "--json"]))
                .unwrap();
        assert_eq!(value["different"], false, "{value}");
        let device = &value["devices"][0];
        assert_eq!(
            (&device["before_requested_bytes"], &device["after_requested_bytes"]),
            (&1856.into(), &1856.into())
        );
    }
}
