//! `timeline` and `categories`: the purpose of memory, read from operator traces.

use flate2::read::GzDecoder;
use memtrack_tests::{memtrack, workspace};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the path of the specification's example trace, or of one of the two exports of this trace.
fn vector(suffix: &str) -> PathBuf {
    workspace().join("memtrack-core/profile/src/tests").join(format!("vector.{suffix}"))
}

fn run(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(memtrack());
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    // The command may exit without reading its input.
    let _ = program.stdin.take().unwrap().write_all(input);
    program.wait_with_output().unwrap()
}

#[track_caller]
fn fails(output: &Output, code: i32, with: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{error}");
    assert!(error.contains(with), "{error}");
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn every_format_is_written_and_no_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let trace = vector("optrace.jsonl");
    let trace = trace.to_str().unwrap();
    for name in [
        "a.json",
        "a.json.gz",
        "a.raw.json",
        "a.raw.json.gz",
        "a.svg",
        "a.png",
        "a.html",
        "a.pickle",
        "a.pickle.gz",
    ] {
        let made = run(folder.path(), &["timeline", trace, "-o", name], b"");
        assert_eq!(
            (made.status.code(), made.stdout.len()),
            (Some(0), 0),
            "{name}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let content = fs::read(folder.path().join(name)).unwrap();
        let plain = if name.ends_with(".gz") {
            let mut plain = Vec::new();
            GzDecoder::new(&content[..]).read_to_end(&mut plain).unwrap();
            plain
        } else {
            content
        };
        match name.split_once('.').unwrap().1.trim_end_matches(".gz") {
            "json" => assert_eq!(
                String::from_utf8(plain).unwrap() + "\n",
                fs::read_to_string(vector("json")).unwrap()
            ),
            "raw.json" => assert_eq!(json_of(&plain), json_of(&fs::read(vector("raw.json")).unwrap())),
            "svg" => {
                let svg = String::from_utf8(plain).unwrap();
                assert!(
                    svg.contains("PARAMETER 16.0 KiB")
                        && svg.contains("Peak allocated: 56.5 KiB (57,856 bytes)"),
                    "{svg}"
                );
            }
            "png" => assert!(plain.starts_with(b"\x89PNG")),
            "html" => {
                let page = String::from_utf8(plain).unwrap();
                assert!(page.contains("\"view\":\"categories\"") && page.contains("optimizer_state"));
            }
            _ => assert_eq!(plain[0], 0x80),
        }
        fails(&run(folder.path(), &["timeline", trace, "-o", name], b""), 2, "add --force");
        assert_eq!(
            run(folder.path(), &["timeline", trace, "-o", name, "--force"], b"").status.code(),
            Some(0)
        );
    }
    // The snapshot that `timeline` wrote can be read by every other verb.
    let summary = run(folder.path(), &["summary", "a.pickle"], b"");
    let summary = String::from_utf8(summary.stdout).unwrap();
    assert!(summary.contains("made of") && summary.contains("optimizer_state 16.0 KiB"), "{summary}");
    assert!(!summary.contains("eserved") && !summary.contains("Contradiction"), "{summary}");
    for arguments in [
        &["stats", "a.pickle"][..],
        &["trace", "a.pickle"],
        &["segments", "a.pickle", "-o", "segments.svg"],
        &["memory", "a.pickle", "-o", "memory.svg"],
        &["compare", "a.pickle", "a.pickle.gz"],
        &["top", "a.pickle", "--by", "category"],
        &["peak", "a.pickle"],
        &["check", "a.pickle", "--max-peak", "1MiB"],
        &["convert", "a.pickle", "again.json"],
        &["view", "a.pickle.gz", "-o", "view.html"],
        &["categories", "a.pickle"],
    ] {
        let output = run(folder.path(), arguments, b"");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn traces_are_read_from_a_pipe_and_exports_are_written_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let trace = fs::read(vector("optrace.jsonl")).unwrap();
    let export = run(folder.path(), &["timeline", "-", "-o", "-"], &trace);
    assert_eq!(String::from_utf8(export.stdout).unwrap(), fs::read_to_string(vector("json")).unwrap());
    let answer = json_of(&run(folder.path(), &["categories", "-", "--json"], &trace).stdout);
    let report = &answer["devices"][0];
    assert_eq!(report["device"], json!({"number": 0, "kind": "device", "name": "cuda:0"}));
    assert_eq!(report["repairs"], json!({}));
    let peak = &report["moments"][0];
    assert_eq!(
        (&peak["moment"], &peak["requested_bytes"], &peak["after_ns"]),
        (&json!("peak"), &json!(57856), &json!(5000))
    );
    let bytes_of = |name: &str| {
        let rows = peak["categories"].as_array().unwrap();
        rows.iter().find(|row| row["category"] == name).map(|row| row["requested_bytes"].as_u64().unwrap())
    };
    assert_eq!(
        (bytes_of("PARAMETER"), bytes_of("OPTIMIZER_STATE"), bytes_of("GRADIENT")),
        (Some(16384), Some(16384), Some(16384))
    );
    assert_eq!(
        (bytes_of("INPUT"), bytes_of("ACTIVATION"), bytes_of("UNKNOWN")),
        (Some(2048), Some(2048), Some(4608))
    );
    assert_eq!(report["moments"][1]["requested_bytes"], 34816);
}

#[test]
fn the_text_has_the_peak_the_end_and_the_phases() {
    let folder = tempfile::tempdir().unwrap();
    let trace = vector("optrace.jsonl");
    let text = run(folder.path(), &["categories", trace.to_str().unwrap()], b"").stdout;
    let text = String::from_utf8(text).unwrap();
    for part in [
        "cuda:0: 20 changes over 5.9 µs",
        "At the peak, 5.0 µs after the start: 56.5 KiB requested (57,856 bytes)",
        "At the end: 34.0 KiB requested (34,816 bytes)",
        "Linear_0",
        "MmBackward",
        "backward ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let after =
        run(folder.path(), &["categories", trace.to_str().unwrap(), "--at", "2.5us", "-n", "1"], b"").stdout;
    let after = String::from_utf8(after).unwrap();
    assert!(after.contains("2.5 µs after the start: 26.5 KiB requested"), "{after}");
    let tensors = run(folder.path(), &["categories", trace.to_str().unwrap(), "--tensors"], b"").stdout;
    assert_eq!(String::from_utf8(tensors).unwrap().lines().count(), 12);
}

#[test]
fn bad_requests_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let trace = vector("optrace.jsonl");
    let trace = trace.to_str().unwrap();
    let run = |arguments: &[&str], input: &[u8]| run(folder.path(), arguments, input);
    fails(&run(&["timeline", trace], b""), 2, "--output");
    fails(&run(&["timeline", trace, "-o", "a.txt"], b""), 2, "end the name in .html");
    fails(
        &run(&["timeline", trace, "--device", "cpu", "-o", "a.json"], b""),
        2,
        "has no device cpu: it has cuda:0",
    );
    fails(&run(&["categories", trace, "--at", "noon"], b""), 2, "expected peak, end, or a time");
    fails(&run(&["categories", "missing.jsonl"], b""), 3, "cannot read missing.jsonl");
    fails(&run(&["categories", "-", "--compat"], b"{}\n"), 3, "line 1: this is not an operator trace");
    let text = fs::read_to_string(trace).unwrap();
    let header = text.lines().next().unwrap();
    let newer = header.replace("\"version\":1,", "\"version\":7,");
    fails(&run(&["categories", "-"], format!("{newer}\n").as_bytes()), 3, "version 7");
    let broken = text.replacen("\"ev\":\"module\"", "\"ev\":\"module", 1);
    fails(&run(&["categories", "-"], broken.as_bytes()), 3, "line 3: column");
    let empty = format!("{header}\n{{\"ev\":\"footer\",\"records\":0}}\n");
    fails(&run(&["categories", "-"], empty.as_bytes()), 3, "has no allocations");
    let two =
        text.replacen("\"dev\":\"cuda:0\",\"ptr\":\"0xf00\"", "\"dev\":\"cuda:1\",\"ptr\":\"0xf00\"", 1);
    fails(&run(&["categories", "-"], two.as_bytes()), 2, "choose one by --device: cuda:0, cuda:1");
    fails(&run(&["summary", trace], b""), 3, "this is an operator trace, for memtrack categories");
    // No file was written.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn repairs_are_reported_and_refused_with_compat() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(vector("optrace.jsonl")).unwrap();
    let cut = &text[..text.len() / 2];
    let repaired = run(folder.path(), &["categories", "-", "--json"], cut.as_bytes());
    assert_eq!(repaired.status.code(), Some(0));
    assert!(String::from_utf8(repaired.stderr).unwrap().contains("memtrack: warning: the trace is cut"));
    assert_eq!(json_of(&repaired.stdout)["devices"][0]["repairs"], json!({"cut": 1}));
    fails(&run(folder.path(), &["categories", "-", "--compat"], cut.as_bytes()), 3, "without --compat");
}
