//! `memtrack cycles`: reference graphs from PyTorch, and hostile ones.

use memtrack_tests::{memtrack, oracle, time};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The CPU time allowed for one graph: a million nodes take about 1 s in a release build, and about 12 s in a test build.
const MAX_SECONDS: u64 = 120;

fn run(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(memtrack());
    time::limited(&mut command, MAX_SECONDS).arg("cycles").args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    // The command may exit without reading its input.
    let _ = program.stdin.take().unwrap().write_all(input);
    program.wait_with_output().unwrap()
}

#[track_caller]
fn fails(output: &Output, code: i32, with: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{error}");
    assert!(error.contains(with) && error.len() < 2000, "{error}");
}

#[track_caller]
fn text_of(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts that the nodes and DOT files of all graphs in a folder equal those of PyTorch's `_cycles`.
fn assert_as_pytorch(folders: &Path) {
    let work = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for folder in fs::read_dir(folders).unwrap() {
        let folder: PathBuf = folder.unwrap().path();
        let graph = folder.join("input.json");
        let (graph, name) = (graph.to_str().unwrap(), folder.file_name().unwrap().to_str().unwrap());
        let dot = format!("{name}.dot");
        text_of(&run(work.path(), &[graph, "-o", &dot], b""));
        let (written, expected) =
            (fs::read(work.path().join(&dot)).unwrap(), fs::read(folder.join("graph.dot")).unwrap());
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8(expected).unwrap(), "{name}");
        let nodes: Value =
            serde_json::from_str(&text_of(&run(work.path(), &[graph, "--nodes"], b""))).unwrap();
        let expected: Value = serde_json::from_slice(&fs::read(folder.join("nodes.json")).unwrap()).unwrap();
        assert_eq!(nodes, expected, "{name}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn nodes_and_dot_files_equal_pytorchs() {
    assert_as_pytorch(&oracle("cycles"));
}

#[test]
fn the_text_names_the_kept_buffers_and_the_reference_to_cut() {
    let folder = tempfile::tempdir().unwrap();
    let graph = fs::read(oracle("cycles/closure/input.json")).unwrap();
    let text = text_of(&run(folder.path(), &["-"], &graph));
    for line in [
        "1 cycle of garbage keeps 1 device buffer of unknown size until the collector runs.",
        "1. function f __closure__ → (cell,cell) [0] → builtins.cell cell_contents → function f",
        "cut: builtins.cell cell_contents → function f",
        "/opt/app/train.py:10:forward_0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn written_json_is_read_again_with_the_same_findings() {
    let folder = tempfile::tempdir().unwrap();
    let graph = oracle("cycles/containers/input.json");
    let graph = graph.to_str().unwrap();
    text_of(&run(folder.path(), &[graph, "-o", "written.json"], b""));
    for arguments in [&["--json"][..], &["--nodes"], &[]] {
        let of = |graph| text_of(&run(folder.path(), &[&[graph], arguments].concat(), b""));
        assert_eq!(of("written.json"), of(graph), "{arguments:?}");
    }
}

#[test]
fn files_are_not_replaced_and_other_suffixes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let graph = oracle("cycles/closure/input.json");
    let graph = graph.to_str().unwrap();
    fs::write(folder.path().join("a.dot"), "original").unwrap();
    fails(&run(folder.path(), &[graph, "-o", "a.dot"], b""), 2, "--force");
    assert_eq!(fs::read(folder.path().join("a.dot")).unwrap(), b"original");
    text_of(&run(folder.path(), &[graph, "-o", "a.dot", "--force"], b""));
    fails(&run(folder.path(), &[graph, "-o", "a.txt"], b""), 2, "end the name in .html, .svg, .dot or .json");
    fails(&run(folder.path(), &[graph, "--json", "--nodes"], b""), 2, "cannot be used with");
    fails(&run(folder.path(), &["missing.json"], b""), 3, "missing.json");
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let node = |references: &str| {
        format!(r#"[{{"label":"a","context":null,"root":true,"references":[{references}]}}]"#)
    };
    let deep = "[".repeat(200_000);
    let cases = [
        (String::new(), "the file is empty"),
        ("\0\0\0".into(), "not a graph of references"),
        ("import torch".into(), "this is Python source"),
        ("{}".into(), "memtrack_cycles"),
        (r#"{"segments": [], "device_traces": []}"#.into(), "this is a PyTorch snapshot"),
        (r#"{"memtrack_cycles": 2, "origin": "rust", "nodes": []}"#.into(), "version is 2"),
        (r#"{"memtrack_cycles": 1, "origin": "perl", "nodes": []}"#.into(), "perl"),
        (r#"{"memtrack_cycles": 1, "origin": "rust", "nodes": [], "edges": [{"from": 0, "to": 0, "path": ""}]}"#.into(), "0 nodes"),
        (r#"{"memtrack_cycles": 1, "origin": "rust", "nodes": [], "nodes": []}"#.into(), "duplicate field"),
        (node(r#"["x", 1]"#), "node 0 refers to node 1, and the graph has 1 nodes"),
        (node(r#"["x", 18446744073709551615]"#), "18446744073709551615"),
        (node(r#"["x", -1]"#), "-1"),
        (node(r#"["x"]"#), "invalid length"),
        (node("").replace("[]}]", "[]}"), "the file ends too early"),
        (node("") + "[]", "trailing characters"),
        (node("").replace("true", "\"yes\""), "expected a boolean"),
        (r#"[{"label":"\ud800","root":true,"references":[]}]"#.into(), "hex escape"),
        (deep, "not a graph of references"),
    ];
    for (graph, why) in cases {
        fails(&run(folder.path(), &["-"], graph.as_bytes()), 3, why);
    }
    fails(&run(folder.path(), &["-", "--max-input", "10"], node("").as_bytes()), 3, "--max-input");
}

#[test]
fn a_million_nodes_are_processed() {
    let folder = tempfile::tempdir().unwrap();
    // A chain whose last two nodes form a cycle; the last node is a tensor.
    let count = 1_000_000;
    let mut graph = String::from("[");
    for node in 0..count {
        let to = if node + 1 == count { count - 2 } else { node + 1 };
        graph += &format!(r#"{{"label":"n","root":{},"references":[["x",{to}]]}},"#, node + 1 == count);
    }
    graph.pop();
    graph.push(']');
    let text = text_of(&run(folder.path(), &["-"], graph.as_bytes()));
    assert!(text.contains("1 cycle of garbage keeps 1 device buffer"), "{text}");
}

#[test]
fn labels_of_any_kind_are_one_line_of_text_and_complete_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let label = "</script>\u{1b}[31m\"\\\u{202e}\n\r\u{0}é😀";
    let long = "x".repeat(1 << 20);
    let graph = json!([
        { "label": label, "context": label, "root": true, "references": [[long, 1], [label, 0]] },
        { "label": long, "context": null, "root": false, "references": [["", 0]] },
    ]);
    let graph = graph.to_string();
    let text = text_of(&run(folder.path(), &["-"], graph.as_bytes()));
    assert!(text.len() < 10_000 && !text.contains('\u{1b}') && !text.contains('\0'), "{text:?}");
    let nodes: Value =
        serde_json::from_str(&text_of(&run(folder.path(), &["-", "--nodes"], graph.as_bytes()))).unwrap();
    assert_eq!((&nodes[0]["label"], &nodes[1]["label"]), (&json!(label), &json!(long)));
    text_of(&run(folder.path(), &["-", "-o", "a.dot"], graph.as_bytes()));
    let dot = fs::read_to_string(folder.path().join("a.dot")).unwrap();
    assert!(
        dot.contains(r#"label="</script>\u001b[31m\"\\\u202e\n\r\u0000\u00e9\ud83d\ude00""#),
        "{}",
        &dot[..300]
    );
}
