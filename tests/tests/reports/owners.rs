//! Reports name the user's own line and the function that it called, for snapshots with Python and C++ stacks.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const EINOPS: &str = "/home/kim/proj/.venv/lib/python3.12/site-packages/einops/einops.py";
const MODEL: &str = "/home/kim/proj/model.py";

fn frame(name: &str, filename: &str, line: u32) -> Value {
    json!({"name": name, "filename": filename, "line": line})
}

fn cpp(name: &str) -> Value {
    frame(name, "??", 0)
}

/// Returns four blocks that one line allocated through operators and a package, one block of another line, and one of autograd's
/// thread.
fn stacks() -> Vec<(u64, Vec<Value>)> {
    let below = |mut inner: Vec<Value>, line: u32| {
        inner.push(frame("forward", MODEL, line));
        inner.push(frame("_call_impl", "/v/lib/python3.12/site-packages/torch/nn/modules/module.py", 1750));
        inner.push(frame("<module>", "/home/kim/proj/train.py", 9));
        inner
    };
    let einsum = |operator: &str| below(vec![cpp(operator), frame("einsum", EINOPS, 916)], 41);
    vec![
        (
            1000,
            below(
                vec![
                    cpp("at::native::mul(at::Tensor const&)"),
                    cpp("at::_ops::mul_Tensor::call(at::Tensor const&)"),
                ],
                41,
            ),
        ),
        (2000, below(vec![cpp("at::_ops::add_Tensor::call(at::Tensor const&)")], 41)),
        (3000, einsum("at::_ops::bmm::call(at::Tensor const&)")),
        (1500, einsum("at::_ops::permute::call(at::Tensor const&)")),
        (700, below(vec![cpp("at::_ops::exp::call(at::Tensor const&)")], 52)),
        (
            400,
            vec![
                cpp("at::_ops::mm::call(at::Tensor const&)"),
                cpp("torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"),
                cpp("torch::autograd::Engine::thread_main(long)"),
                cpp("clone"),
            ],
        ),
    ]
}

fn run_in(folder: &Path, stacks: &[(u64, Vec<Value>)], arguments: &[&str]) -> Output {
    let event = |(n, (size, frames)): (u64, &(u64, Vec<Value>))| json!({"action": "alloc", "addr": n << 20, "size": size, "stream": 0, "time_us": n, "frames": frames});
    let events: Vec<Value> = (1u64..).zip(stacks).map(event).collect();
    let path = folder.join("snapshot.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [events]}).to_string()).unwrap();
    let mut command = Command::new(memtrack());
    command.current_dir(folder).env("COLUMNS", "160").arg(arguments[0]).arg(&path).args(&arguments[1..]);
    command.output().unwrap()
}

fn run(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &stacks(), arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn device(arguments: &[&str]) -> Value {
    let value: Value = serde_json::from_str(&run(&[arguments, &["--json"]].concat())).unwrap();
    value["devices"][0].clone()
}

fn rows(arguments: &[&str]) -> Vec<(String, u64, u64)> {
    let device = device(arguments);
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let row = |row: &Value| {
        (memtrack_tests::verbs::name(row), number(row, "requested_bytes"), number(row, "count"))
    };
    device["rows"].as_array().unwrap().iter().map(row).collect()
}

fn owned(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    rows.iter().map(|&(name, bytes, count)| (name.to_owned(), bytes, count)).collect()
}

#[test]
fn a_line_of_the_user_is_one_row_whatever_it_called() {
    let expected = [
        ("model.py:41 forward", 7500, 4),
        ("model.py:52 forward", 700, 1),
        ("not your code: torch::autograd::generated::MmBackward0::apply", 400, 1),
    ];
    assert_eq!(rows(&["top", "--by", "line"]), owned(&expected));
    let first = device(&["top", "--by", "line"])["rows"][0].clone();
    assert_eq!(first["mine"], json!({"function": "forward", "file": MODEL, "line": 41, "address": null}));
    assert_eq!(first["calls"], json!({"function": "einsum", "file": EINOPS, "line": 916, "address": null}));
    let called = json!([
        {"name": "einops.py:916 einsum", "requested_bytes": 4500, "count": 2},
        {"name": "aten::add_Tensor", "requested_bytes": 2000, "count": 1},
        {"name": "aten::mul_Tensor", "requested_bytes": 1000, "count": 1},
    ]);
    assert_eq!(first["called"], called);
    let text = run(&["top", "--by", "line"]);
    assert!(text.contains("model.py:41 forward → einops.py:916 einsum, 2 more"), "{text}");
    assert!(text.contains("model.py:52 forward → aten::exp "), "{text}");
}

#[test]
fn files_with_the_same_name_are_distinguished() {
    let of = |folder: &str| vec![frame("f", &format!("/home/kim/{folder}/layers.py"), 3)];
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &[(2, of("a")), (1, of("b"))], &["top", "--by", "line", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |row: usize| value["devices"][0]["rows"][row]["name"].clone();
    assert_eq!((name(0), name(1)), ("/home/kim/a/layers.py:3 f".into(), "/home/kim/b/layers.py:3 f".into()));
}

#[test]
fn python_stacks_contain_only_python_frames() {
    let expected = [
        ("einsum", 4500, 2),
        ("forward", 3000, 2),
        ("forward", 700, 1),
        ("(no Python in the stack)", 400, 1),
    ];
    assert_eq!(rows(&["top", "--by", "python"]), owned(&expected));
    let first = device(&["top", "--by", "python"])["rows"][0].clone();
    let files: Vec<&str> =
        first["stack"].as_array().unwrap().iter().map(|line| line["file"].as_str().unwrap()).collect();
    assert_eq!(files.len(), 4);
    assert!(files.iter().all(|file| file.ends_with(".py")), "{files:?}");
}

#[test]
fn stacks_that_look_the_same_are_one_row_unless_every_frame_is_requested() {
    let numbers = |arguments: &[&str]| {
        rows(arguments).into_iter().map(|(_, bytes, count)| (bytes, count)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&["top", "--by", "stack"]), [(4500, 2), (3000, 2), (700, 1), (400, 1)]);
    assert_eq!(device(&["top", "--by", "stack"])["rows"][0]["stacks"], 2);
    let all = [(3000, 1), (2000, 1), (1500, 1), (1000, 1), (700, 1), (400, 1)];
    assert_eq!(numbers(&["top", "--by", "stack", "--frames", "0"]), all);
    // `peak` groups stacks in the same way.
    assert_eq!(numbers(&["peak"]), [(4500, 2), (3000, 2), (700, 1), (400, 1)]);
}

#[test]
fn the_largest_group_of_a_summary_is_the_line_that_top_ranks_first() {
    let frame = |name: &str, file: &str, line: u32| json!({"name": name, "filename": file, "line": line});
    let top = frame("<module>", "/home/kim/proj/train.py", 9);
    let stack =
        |called: &str, line: u32| vec![frame(called, "??", 0), frame("forward", MODEL, line), top.clone()];
    // The first stack has the most bytes of all stacks. The next two stacks are of one line, which has more bytes in total.
    let stacks = [
        (900, stack("at::_ops::exp::call(at::Tensor const&)", 14)),
        (700, stack("at::_ops::mul_Tensor::call(at::Tensor const&)", 36)),
        (500, stack("at::_ops::exp::call(at::Tensor const&)", 36)),
        // This line allocates most of its bytes directly, and the rest in a function that it calls.
        (300, vec![frame("main", "/home/kim/proj/leak.c", 12), top.clone()]),
        (200, vec![frame("_IO_puts", "??", 0), frame("main", "/home/kim/proj/leak.c", 12), top.clone()]),
    ];
    let events: Vec<_> = stacks
        .iter()
        .enumerate()
        .map(|(at, (size, frames))| {
            json!({"action": "alloc", "addr": 4096 * (at + 1), "size": size, "stream": 0, "time_us": at, "frames": frames})
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [events]}).to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(memtrack()).args(arguments).arg(&path).env_remove("COLUMNS").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&["summary"]);
    let line = "is from model.py:36 forward → aten::mul_Tensor, 1 more";
    assert!(text.contains(&format!("the largest group at the peak, 1.2 KiB (46.2 %), {line}")), "{text}");
    assert!(text.contains(&format!("the largest group, 1.2 KiB, {line}")), "{text}");
    let text = run(&["top", "--at", "peak", "--by", "line"]);
    let rows: Vec<&str> = text.lines().skip(4).map(str::trim_start).collect();
    assert!(rows[0].starts_with("model.py:36 forward → aten::mul_Tensor, 1 more "), "{text}");
    assert!(rows[2].starts_with("leak.c:12 main   "), "most of it is allocated by the line itself: {text}");
}

#[test]
fn the_summary_and_the_peak_name_the_users_line() {
    let line = "model.py:41 forward → einops.py:916 einsum";
    let text = run(&["summary"]);
    assert!(text.contains(&format!("is from {line}")), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let autograd = stacks().pop().unwrap();
    let text = String::from_utf8(run_in(folder.path(), &[autograd], &["summary"]).stdout).unwrap();
    let no_own_line = "is from torch::autograd::generated::MmBackward0::apply, outside your code";
    assert!(text.contains(no_own_line), "{text}");
    let text = run(&["peak"]);
    assert!(text.contains(&format!("     {line}\n     einsum einops.py:916\n")), "{text}");
    assert_eq!(device(&["peak"])["rows"][0]["mine"]["file"], MODEL);
}

#[test]
fn an_option_or_a_file_in_the_current_folder_makes_a_package_the_users_own() {
    let first = |folder: &Path, arguments: &[&str]| {
        let output = run_in(folder, &stacks(), &[&["top", "--by", "line", "--json"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["devices"][0]["rows"][0]["name"].as_str().unwrap().to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(first(folder.path(), &[]), "model.py:41 forward");
    assert_eq!(first(folder.path(), &["--mine", "site-packages/einops"]), "einops.py:916 einsum");
    assert_eq!(first(folder.path(), &["--not-mine", "proj/model.py"]), "train.py:9 <module>");
    std::fs::write(folder.path().join("memtrack.toml"), "[mine]\npaths = ['site-packages/einops']\n")
        .unwrap();
    assert_eq!(first(folder.path(), &[]), "einops.py:916 einsum");
    assert_eq!(first(folder.path(), &["--not-mine", "einops"]), "model.py:41 forward", "options come first");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    assert_eq!(first(&inner, &[]), "model.py:41 forward", "no folder above is searched");
    assert_eq!(first(&inner, &["--rules", "../memtrack.toml"]), "einops.py:916 einsum");
}

#[test]
fn an_invalid_rules_file_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("memtrack.toml"), "[mine]\npath = []\n").unwrap();
    for verb in ["top", "summary", "peak"] {
        let output = run_in(folder.path(), &stacks(), &[verb]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("memtrack.toml: line 2: unknown field `path`"), "{stderr}");
        let output = run_in(folder.path(), &stacks(), &[verb, "--rules", "nowhere.toml"]);
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn the_rule_that_decided_is_shown_on_demand() {
    let text = run(&["top", "--by", "line", "--explain", "--mine", "proj/model.py"]);
    for line in [
        "Owners of frames: model.py:41 forward → ",
        "> mine       model.py:41 forward  (mine proj/model.py)",
        "  noise      module.py:1750 _call_impl  (PyTorch's module call)",
        "  mine       train.py:9 <module>  (a Python file outside packages)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for verb in ["summary", "peak"] {
        let explained = device(&[verb, "--explain"])["explained"].clone();
        assert_eq!(explained[0]["named"], "model.py:41 forward → einops.py:916 einsum", "{explained}");
    }
    assert!(device(&["top", "--by", "line"])["explained"].is_null());
}

#[test]
fn blocks_older_than_the_trace_are_one_row_with_or_without_their_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let block = |state: &str, size: u64| json!({"size": size, "requested_size": size, "state": state});
    let segment = json!({
        "device": 0, "address": 1 << 20, "total_size": 4096, "stream": 0, "segment_type": "small",
        "allocated_size": 1024, "active_size": 1024,
        "blocks": [block("active_allocated", 1024), block("inactive", 3072)]
    });
    let freed = json!({"action": "free_completed", "addr": (1 << 20) + 1024, "size": 512, "stream": 0, "time_us": 5, "frames": [frame("f", MODEL, 1)]});
    let rows = |events: &[&Value], by: &str| -> Vec<(String, u64)> {
        let snapshot = json!({"segments": [segment], "device_traces": [events]});
        std::fs::write(&path, snapshot.to_string()).unwrap();
        let arguments = ["top", "--at", "peak", "--json", "--by", by];
        let output = Command::new(memtrack()).args(arguments).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = |row: &Value| (memtrack_tests::verbs::name(row), row["requested_bytes"].as_u64().unwrap());
        value["devices"][0]["rows"].as_array().unwrap().iter().map(row).collect()
    };
    for by in ["line", "stack", "python", "frame", "file"] {
        assert_eq!(rows(&[&freed], by), [("(allocated before the first event)".to_owned(), 1536)], "{by}");
    }
    assert_eq!(rows(&[], "line"), [("(no stack)".to_owned(), 1024)], "no block is older than an empty trace");
}

/// Returns two blocks of one program, whose paths use the path separator of Linux or of Windows.
fn blocks_with_separator(separator: &str) -> Vec<(u64, Vec<Value>)> {
    let root = if separator == "/" { "/home/me/lm" } else { "D:/work/lm" };
    let library =
        if separator == "/" { ".venv/lib/python3.12/site-packages" } else { ".venv/Lib/site-packages" };
    let file = |path: &str| format!("{root}/{path}").replace('/', separator);
    let below = |line: u32| {
        vec![
            frame("einsum", &file(&format!("{library}/torch/functional.py")), 373),
            frame("forward", &file("lm/model.py"), line),
            frame("_call_impl", &file(&format!("{library}/torch/nn/modules/module.py")), 1773),
            frame("<module>", &file("train.py"), 12),
        ]
    };
    vec![(16 << 20, below(39)), (4 << 20, below(52))]
}

/// Returns the output of a verb for the program on Linux and on Windows.
fn on_both_systems(arguments: &[&str]) -> [String; 2] {
    ["/", "\\"].map(|separator| {
        let folder = tempfile::tempdir().unwrap();
        let output = run_in(folder.path(), &blocks_with_separator(separator), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn reports_on_windows_snapshots_equal_those_on_linux() {
    let [linux, windows] = on_both_systems(&["top", "--by", "line"]);
    assert!(linux.contains("model.py:39 forward → functional.py:373 einsum"), "{linux}");
    assert_eq!(windows, linux);
    for arguments in [
        &["top", "--by", "module"][..],
        &["top", "--by", "stack", "--frames", "0"],
        &["summary"],
        &["peak"],
        &["categories"],
        &["memory", "--at", "peak", "--folded"],
        &["top", "--by", "line", "--not-mine", "lm/model.py"],
        &["top", "--by", "line", "--mine", "site-packages/torch"],
    ] {
        let [linux, windows] = on_both_systems(arguments);
        assert_eq!(windows, linux, "{arguments:?}");
    }
    let [linux, _] = on_both_systems(&["top", "--by", "line", "--not-mine", "lm/model.py"]);
    let [_, windows] = on_both_systems(&["top", "--by", "line", "--not-mine", "lm\\model.py"]);
    assert_eq!(windows, linux);
}

#[test]
fn diff_finds_no_difference_between_windows_and_linux() {
    let folder = tempfile::tempdir().unwrap();
    for (name, separator) in [("linux", "/"), ("windows", "\\")] {
        run_in(folder.path(), &blocks_with_separator(separator), &["top"]);
        std::fs::rename(folder.path().join("snapshot.json"), folder.path().join(format!("{name}.json")))
            .unwrap();
    }
    let mut command = Command::new(memtrack());
    let output = command
        .current_dir(folder.path())
        .args(["diff", "linux.json", "windows.json", "--json"])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["different"], false, "{answer:#}");
    assert_eq!(answer["devices"][0]["rows"], json!([]), "{answer:#}");
}

#[test]
fn an_autograd_node_has_its_forward_line_where_only_one_is_possible() {
    let forward = |operator: &str, line: u32| {
        vec![
            cpp(&format!("at::_ops::{operator}::redispatch(c10::DispatchKeySet, at::Tensor const&)")),
            cpp(&format!(
                "torch::autograd::VariableType::(anonymous namespace)::{operator}(c10::DispatchKeySet)"
            )),
            cpp(&format!("at::_ops::{operator}::call(at::Tensor const&)")),
            frame("forward", MODEL, line),
        ]
    };
    let backward = |node: &str| {
        vec![
            cpp("__xmknodat"),
            cpp(&format!("torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)")),
            cpp("torch::autograd::Engine::thread_main(long)"),
            cpp("__xmknodat"),
            cpp("clone"),
        ]
    };
    let stacks = vec![
        (500, forward("bmm", 41)),
        (400, forward("exp", 42)),
        (300, forward("exp", 43)),
        (2000, backward("BmmBackward0")),
        (1000, backward("ExpBackward0")),
    ];
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &stacks, &["top", "--by", "line", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["devices"][0]["rows"].as_array().unwrap();
    let row = |place: usize| {
        (rows[place]["name"].as_str().unwrap(), rows[place]["requested_bytes"].as_u64().unwrap())
    };
    assert_eq!(row(0), ("model.py:41 forward", 2500));
    assert_eq!(row(1), ("not your code: torch::autograd::generated::ExpBackward0::apply", 1000));
    assert!(!value.to_string().contains("\"name\":\"__xmknodat"), "{value:#}");
}
