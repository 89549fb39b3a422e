//! `memtrack memory --at`: flame graphs of the live blocks at a moment.

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::memtrack;
use memtrack_tests::snapshots::small;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TORCH: &str = "/v/lib/python3.12/site-packages/torch/nn/modules/module.py";

fn frame(name: &str, file: &str, line: usize) -> Value {
    json!({"name": name, "filename": file, "line": line})
}

/// Returns a snapshot of blocks with these sizes and stacks, innermost frame first. All blocks are live at the peak, and are
/// freed afterwards by `main`.
fn snapshot(stacks: &[(u64, Vec<Value>)]) -> Value {
    let event = |action: &str, number: usize, time: usize| {
        let (size, frames) = &stacks[number];
        let frames =
            if action == "alloc" { json!(frames) } else { json!([frame("main", "/app/main.py", 1)]) };
        json!({"action": action, "addr": (number + 1) << 24, "size": size, "stream": 0, "time_us": time, "frames": frames})
    };
    let count = stacks.len();
    let allocated = (0..count).map(|number| event("alloc", number, number));
    let freed = (0..count).map(|number| event("free_requested", number, count + number));
    json!({"segments": [], "device_traces": [allocated.chain(freed).collect::<Vec<_>>()]})
}

fn model() -> Value {
    let below = |inner: Vec<Value>, line: usize| {
        let outer = [
            frame("forward", "/app/model.py", line),
            frame("_call_impl", TORCH, 1750),
            frame("main", "/app/main.py", 9),
        ];
        inner.into_iter().chain(outer).collect::<Vec<_>>()
    };
    let cpp = |name: &str| frame(name, "??", 0);
    snapshot(&[
        (1000, below(vec![cpp("at::native::empty(long)"), cpp("at::_ops::mm::call(at::Tensor const&)")], 41)),
        (500, below(vec![cpp("at::_ops::mm::call(at::Tensor const&)")], 41)),
        (70, below(vec![], 52)),
        (3, vec![]),
    ])
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("memory").args(arguments).current_dir(folder).output().unwrap()
}

fn folder_with(snapshot: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.json"), snapshot.to_string()).unwrap();
    folder
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn stacks_are_outermost_first_without_frames_that_only_pass_a_call_on() {
    let folder = folder_with(&model());
    let output = run(folder.path(), &["a.json", "--at", "peak", "--folded"]);
    let expected = "(no stack) 3\nmain.py:9 main;model.py:41 forward;aten::mm 1500\nmain.py:9 main;model.py:52 forward 70\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let output = run(folder.path(), &["a.json", "--at", "0", "-o", "first.folded"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let first = fs::read_to_string(folder.path().join("first.folded")).unwrap();
    assert_eq!(first, "main.py:9 main;model.py:41 forward;aten::mm 1000\n");
    let rules = ["a.json", "--at", "peak", "--folded", "--mine", "torch/nn"];
    let output = run(folder.path(), &rules);
    assert!(text(&output.stdout).contains("module.py:1750 _call_impl"), "{}", text(&output.stdout));
}

#[test]
fn json_has_every_stack_and_null_for_unknown_values() {
    let folder = folder_with(&model());
    let output = run(folder.path(), &["a.json", "--at", "peak", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &value["devices"][0];
    assert_eq!(
        (&device["requested_bytes"], &device["count"], &device["at"]),
        (&1573.into(), &4.into(), &"at the peak".into())
    );
    assert_eq!(device["device"], json!({"number": 0, "kind": "device", "name": "device 0"}));
    assert!(device["requested_bytes_error"].is_null());
    let stacks = device["stacks"].as_array().unwrap();
    let sum: u64 = stacks.iter().map(|stack| stack["requested_bytes"].as_u64().unwrap()).sum();
    assert_eq!((stacks.len(), sum), (4, 1573));
    let operator = json!({"function": "at::_ops::mm::call(at::Tensor const&)", "file": null, "line": null, "address": null, "mine": false});
    assert_eq!(stacks[1]["stack"][0], operator);
    assert_eq!((&stacks[3]["stack"], &stacks[3]["before_the_trace"]), (&json!([]), &json!(false)));
}

#[test]
fn a_picture_of_many_stacks_has_a_thousand_rectangles_and_every_byte() {
    let stack = |number: usize| {
        let size = 1 + (number as u64 * 7919) % 5000;
        let inner = frame("inner", "/app/leaf.py", 1 + number);
        (
            size,
            vec![inner, frame("outer", "/app/model.py", 1 + number % 100), frame("main", "/app/main.py", 9)],
        )
    };
    let stacks: Vec<_> = (0..3000).map(stack).collect();
    let sum: u64 = stacks.iter().map(|(size, _)| size).sum();
    let folder = folder_with(&snapshot(&stacks));
    let output = run(folder.path(), &["a.json", "--at", "peak", "-o", "peak.svg"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let svg = fs::read_to_string(folder.path().join("peak.svg")).unwrap();
    let titles: Vec<&str> =
        svg.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap()).collect();
    assert!((900..=1000).contains(&titles.len()), "{}", titles.len());
    let bytes = |title: &str| -> u64 {
        let number = title.rsplit_once(" (").unwrap().1.split(" bytes").next().unwrap();
        number.replace(',', "").parse().unwrap()
    };
    let around = titles.iter().find(|title| title.starts_with("all (")).expect("one rectangle around all");
    assert_eq!(bytes(around), sum, "{around}");
    let leaves = titles.iter().filter(|title| title.starts_with("leaf.py") || title.starts_with('…'));
    assert_eq!(leaves.clone().map(|title| bytes(title)).sum::<u64>(), sum);
    assert!(leaves.clone().any(|title| title.starts_with('…') && title.contains(" more (")));
    // The smallest blocks were merged.
    let of_leaves = leaves.filter(|title| title.starts_with("leaf.py")).map(|title| bytes(title));
    assert!(of_leaves.min().unwrap() > 2000);
    // `--folded`, the format for other tools, contains all stacks.
    let all = run(folder.path(), &["a.json", "--at", "peak", "--folded"]);
    assert_eq!(text(&all.stdout).lines().count(), 3000);
}

#[test]
fn several_devices_have_a_root_each_and_a_recording_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.memtrack"), small().save_to(Vec::new()).unwrap()).unwrap();
    let output = run(folder.path(), &["small.memtrack", "--at", "end", "-o", "end.svg"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let svg = fs::read_to_string(folder.path().join("end.svg")).unwrap();
    assert!(svg.contains("Host heap at the end: 3.9 KiB in 4 blocks"), "{}", &svg[..2000]);
    let two = json!({"segments": [], "device_traces": [
        [{"action": "alloc", "addr": 4096, "size": 600, "stream": 0, "time_us": 1, "frames": []}],
        [{"action": "alloc", "addr": 4096, "size": 30, "stream": 0, "time_us": 1, "frames": []}]
    ]});
    fs::write(folder.path().join("two.json"), two.to_string()).unwrap();
    let output = run(folder.path(), &["two.json", "--at", "peak", "--folded"]);
    assert_eq!(text(&output.stdout), "device 0;(no stack) 600\ndevice 1;(no stack) 30\n");
    let output = run(folder.path(), &["two.json", "--at", "peak", "--folded", "--device", "1"]);
    assert_eq!(text(&output.stdout), "(no stack) 30\n");
}

#[test]
fn bad_requests_are_refused_and_no_file_is_replaced() {
    let folder = folder_with(&model());
    let code = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (status, stderr) = code(&["a.json", "--at", "oom"]);
    assert!(status == Some(2) && stderr.contains("never ran out of memory"), "{stderr}");
    let (status, stderr) = code(&["a.json", "--at", "peak", "-o", "peak.png"]);
    assert!(status == Some(2) && stderr.contains(".folded"), "{stderr}");
    let (status, stderr) = code(&["a.json", "--device", "0"]);
    assert!(status == Some(2) && stderr.contains("add --at"), "{stderr}");
    assert_eq!(code(&["a.json", "--at", "yesterday"]).0, Some(2));
    for _ in 0..2 {
        assert_eq!(code(&["a.json", "--at", "peak", "-o", "peak.svg", "--force"]).0, Some(0));
    }
    assert_eq!(code(&["a.json", "--at", "peak", "-o", "peak.svg"]).0, Some(2));
    fs::write(folder.path().join("none.json"), json!({"segments": [], "device_traces": [[]]}).to_string())
        .unwrap();
    assert_eq!(code(&["none.json", "--at", "peak", "-o", "none.svg"]).0, Some(0));
    assert!(fs::read_to_string(folder.path().join("none.svg")).unwrap().contains("nothing was live"));
}
