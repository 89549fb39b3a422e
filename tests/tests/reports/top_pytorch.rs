//! Rankings of PyTorch's snapshots, for readers who know Python but not PyTorch's allocator.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::process::Command;

fn frame(name: &str, filename: &str, line: u64) -> Value {
    json!({"name": name, "filename": filename, "line": line})
}

/// Runs a verb on a snapshot with two blocks that one Python line allocated through two operators.
fn run(arguments: &[&str]) -> String {
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
    run_on(
        &[event(4096, "at::native::mm(at::Tensor)"), event(8192, "at::native::add(at::Tensor)")],
        arguments,
    )
}

/// Runs a verb on a snapshot of these events.
fn run_on(events: &[Value], arguments: &[&str]) -> String {
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
    rows.map(memtrack_tests::verbs::name).collect()
}

#[test]
fn frames_and_files_are_those_of_python() {
    assert_eq!(names(&["top", "--by", "frame"]), ["forward /app/model.py:12"]);
    assert_eq!(names(&["top", "--by", "file"]), ["/app/model.py"]);
    assert!(run(&["summary"]).contains("is from model.py:12 forward → "));
}

#[test]
fn stacks_omit_the_allocators_frames() {
    assert_eq!(
        names(&["top", "--by", "stack", "--frames", "0"]),
        ["at::native::add(at::Tensor)", "at::native::mm(at::Tensor)"]
    );
}

#[test]
fn a_limit_of_zero_shows_all_rows() {
    assert_eq!(names(&["top", "--by", "stack", "--frames", "0", "-n", "0"]).len(), 2);
    assert_eq!(names(&["top", "--by", "stack", "--frames", "0", "-n", "1"]).len(), 1);
}

#[test]
fn a_report_repeats_nothing_and_omits_scopes_where_there_are_none() {
    let text = run(&["top", "--at", "peak"]);
    assert!(text.contains("Live at that moment: 1.2 KiB in 2 blocks"), "{text}");
    for absent in ["Live at peak", "unattributed", "no phase"] {
        assert!(!text.contains(absent), "{text}");
    }
    for (by, is_shown) in [("operator", true), ("phase", false), ("module", false)] {
        assert_eq!(run(&["top", "--by", by]).contains("Attributed: "), is_shown, "{by}");
    }
}

#[test]
fn cpp_stacks_name_operators_phases_and_modules() {
    let cpp = |names: &[&str]| names.iter().map(|name| frame(name, "??", 0)).collect::<Vec<_>>();
    let module = |line| frame("_call_impl", "/v/torch/nn/modules/module.py", line);
    let forward = cpp(&["at::_ops::empty_memory_format::call(long)", "at::_ops::einsum::call(long)"]);
    let forward = [forward, vec![frame("forward", "/app/model.py", 39), module(1790)]].concat();
    let backward = cpp(&["at::_ops::bmm::call(long)", "torch::autograd::Engine::thread_main(long)", "clone"]);
    let step = [cpp(&["at::_ops::sqrt::redispatch(long)"]), vec![frame("step", "/v/torch/optim/adam.py", 3)]];
    let stacks = [forward, backward, step.concat(), cpp(&["ncclCommInit(long)"])];
    let events: Vec<Value> = (1u64..)
        .zip(&stacks)
        .map(|(n, frames)| json!({"action": "alloc", "addr": n << 20, "size": 1000 >> n, "stream": 0, "time_us": n, "frames": frames}))
        .collect();
    let rows = |by: &str| -> Vec<(String, u64)> {
        let value: Value = serde_json::from_str(&run_on(&events, &["top", "--by", by, "--json"])).unwrap();
        let rows = value["devices"][0]["rows"].as_array().unwrap().iter();
        rows.map(|row| (memtrack_tests::verbs::name(row), row["requested_bytes"].as_u64().unwrap())).collect()
    };
    let owned = |rows: &[(&str, u64)]| {
        rows.iter().map(|&(name, bytes)| (name.into(), bytes)).collect::<Vec<(String, u64)>>()
    };
    assert_eq!(
        rows("operator"),
        owned(&[
            ("forward.aten::einsum", 500),
            ("backward.aten::bmm", 250),
            ("optimizer.aten::sqrt", 125),
            ("(unattributed)", 62)
        ])
    );
    assert_eq!(
        rows("phase"),
        owned(&[("forward", 500), ("backward", 250), ("optimizer", 125), ("(no phase)", 62)])
    );
    assert_eq!(rows("module"), owned(&[("model.py:39", 500), ("(no module in the stack)", 437)]));
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn all_memory_of_a_real_training_run_is_attributed() {
    let path = memtrack_tests::shared().join("oracle/snapshots/real/wedson_128_train.pickle.gz");
    let output =
        Command::new(memtrack()).arg("top").arg(path).args(["--by", "phase", "--json"]).output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &value["devices"][0];
    assert_eq!(device["attribution"]["unattributed_bytes"], 0);
    let names: Vec<_> = device["rows"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names[..3], ["optimizer", "backward", "forward"]);
}

#[test]
fn a_trace_without_allocations_is_ranked_by_live_blocks() {
    let frees: Vec<Value> = [(1u64, 500), (2, 900), (3, 700)]
        .into_iter()
        .map(|(n, size)| json!({"action": "free_requested", "addr": n << 20, "size": size, "stream": 0, "time_us": n, "frames": []}))
        .collect();
    let text = run_on(&frees, &["top", "--by", "size"]);
    let places = ["900 B", "700 B", "500 B"].map(|size| text.find(size).expect(&text));
    assert!(places.is_sorted(), "{text}");
    assert!(text.contains("Nothing was allocated within the trace; --at peak"), "{text}");
    assert!(!run_on(&frees, &["top", "--by", "size", "--at", "0"]).contains("--at peak"));
}
