//! Rankings of PyTorch's snapshots: whoever reads one knows Python, not PyTorch's allocator.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::process::Command;

/// Runs a verb on a snapshot with two blocks of one Python line, by two operators.
fn run(arguments: &[&str]) -> String {
    let frame =
        |name: &str, filename: &str, line: u64| json!({"name": name, "filename": filename, "line": line});
    let event = |addr: u64, operator: &str| {
        let frames = [
            frame("torch::unwind::unwind()", "??", 0),
            frame("c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)", "a.cpp", 0),
            frame(operator, "Native.cpp", 7),
            frame("forward", "/app/model.py", 12),
            frame("<module>", "/app/train.py", 90),
        ];
        json!({"action": "alloc", "addr": addr, "size": 600, "stream": 0, "time_us": addr, "frames": frames})
    };
    let events = [event(4096, "at::native::mm(at::Tensor)"), event(8192, "at::native::add(at::Tensor)")];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [events]}).to_string()).unwrap();
    let output =
        Command::new(memtrack()).arg(arguments[0]).arg(&path).args(&arguments[1..]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn names(arguments: &[&str]) -> Vec<String> {
    let value: Value = serde_json::from_str(&run(&[arguments, &["--json"]].concat())).unwrap();
    let rows = value["devices"][0]["rows"].as_array().unwrap().iter();
    rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn frames_and_files_are_pythons() {
    assert_eq!(names(&["top", "--by", "frame"]), ["forward /app/model.py:12"]);
    assert_eq!(names(&["top", "--by", "file"]), ["/app/model.py"]);
    assert!(run(&["summary"]).contains("is from forward model.py:12"));
}

#[test]
fn stacks_begin_behind_the_allocator() {
    assert_eq!(
        names(&["top", "--by", "stack"]),
        ["at::native::add(at::Tensor)", "at::native::mm(at::Tensor)"]
    );
}

#[test]
fn zero_rows_asked_for_are_all_rows() {
    assert_eq!(names(&["top", "--by", "stack", "-n", "0"]).len(), 2);
    assert_eq!(names(&["top", "--by", "stack", "-n", "1"]).len(), 1);
}

#[test]
fn a_report_says_nothing_twice_and_nothing_of_scopes_where_there_are_none() {
    let text = run(&["top", "--at", "peak"]);
    assert!(text.contains("Live then: 1.2 KiB in 2 blocks"), "{text}");
    for absent in ["Live at peak", "unattributed", "no phase"] {
        assert!(!text.contains(absent), "{text}");
    }
}
