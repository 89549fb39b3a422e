//! `stats`, `trace`, `segments`, `memory` and `compare` as a user runs them: options, files, warnings and exit codes. The tests
//! in `reports/viz_texts.rs` compare the texts with PyTorch's.
#![cfg(unix)]

use memtrack_core::analysis::units::{counted, human_bytes};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::snapshots::small;
use memtrack_tests::{fixture, memtrack, oracle, time};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn sample(name: &str) -> PathBuf {
    fixture("snapshots/samples").join(name)
}

fn synth(name: &str) -> PathBuf {
    oracle("snapshots/synth").join(name)
}

fn run(folder: &Path, arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(memtrack());
    command.args(arguments).args(files).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn json(arguments: &[&str], files: &[&Path]) -> Value {
    let output = run(Path::new("/"), &[arguments, &["--json"]].concat(), files);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_text_has_one_line_break_more_than_pytorchs_string() {
    let file = sample("basic-1.pickle");
    for verb in ["stats", "trace"] {
        let expected = fs::read(sample(&format!("basic-1.{verb}.txt"))).unwrap();
        assert_eq!(run(Path::new("/"), &[verb], &[&file]).stdout, expected);
        let piped =
            Command::new(memtrack()).args([verb, "-"]).stdin(File::open(&file).unwrap()).output().unwrap();
        assert_eq!(piped.stdout, expected);
    }
}

#[test]
fn pictures_show_free_blocks_as_free_and_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample("basic-2.pickle");
    for verb in ["memory", "segments"] {
        let output = run(folder.path(), &[verb], &[&file]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
        let svg = fs::read_to_string(folder.path().join("output.svg")).unwrap();
        assert!(svg.contains("<svg") && svg.contains("active_allocated") && svg.contains("inactive"));
        assert!(!svg.contains("width=\"-") && svg.contains("(rounding)"));
        assert_eq!(run(folder.path(), &[verb], &[&file]).status.code(), Some(2));
        assert_eq!(run(folder.path(), &[verb, "--force"], &[&file]).status.code(), Some(0));
        fs::remove_file(folder.path().join("output.svg")).unwrap();
    }
    let other = run(folder.path(), &["memory", "-o", "picture.png"], &[&synth("empty.pickle")]);
    assert_eq!(other.status.code(), Some(2), "a name must not promise another format");
    let empty = run(folder.path(), &["memory", "-o", "empty.svg"], &[&synth("empty.pickle")]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(folder.path().join("empty.svg").exists());
}

#[test]
fn scrubbed_segments_compare_the_same() {
    let files = [sample("basic-1.pickle"), sample("basic-2.pickle")];
    let compare = |arguments: &[&str]| {
        let output =
            run(Path::new("/"), &[&["compare", "--folded"], arguments].concat(), &[&files[0], &files[1]]);
        assert_eq!(output.status.code(), Some(0));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (plain, _) = compare(&[]);
    let (hidden, hints) = compare(&["--scrub"]);
    assert!(plain.contains("train.py") && !hidden.contains("train.py"), "{hidden}");
    // Returns what remains of each line without the names of its frames: addresses, kinds and bytes.
    let rest = |text: &str| -> Vec<String> {
        let kept =
            |line: &str| line.split(';').take(4).chain(line.rsplit(' ').next()).collect::<Vec<_>>().join(" ");
        text.lines().map(kept).collect()
    };
    assert_eq!(rest(&plain), rest(&hidden));
    assert_eq!(hints.matches("without --scrub-key").count(), 1, "{hints}");
}

#[test]
fn a_picture_has_a_title_and_separate_devices() {
    let folder = tempfile::tempdir().unwrap();
    let segment = |device: u64| {
        let block = |address: u64, size: u64, state: &str| serde_json::json!({"address": address, "size": size, "requested_size": size - 1, "state": state});
        let address = (device + 1) << 30;
        serde_json::json!({"device": device, "address": address, "total_size": 3072, "stream": 0,
            "blocks": [block(address, 1024, "active_allocated"), block(address + 1024, 2048, "inactive")]})
    };
    let picture = |segments: &[Value], arguments: &[&str]| {
        let path = folder.path().join("snapshot.json");
        fs::write(&path, serde_json::json!({"segments": segments, "device_traces": [[], []]}).to_string())
            .unwrap();
        let output = run(folder.path(), &[&["memory", "--force"], arguments].concat(), &[&path]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let folded = String::from_utf8(output.stdout).unwrap();
        (folded, fs::read_to_string(folder.path().join("output.svg")).unwrap_or_default())
    };
    let (_, svg) = picture(&[segment(1)], &[]);
    let title = "Memory by stream of device 1: 3.0 KiB reserved, 1023 B in use, 1 B rounding, 2.0 KiB free";
    assert!(svg.contains(title) && svg.contains("Grey: free") && !svg.contains("<title>device 1"), "{svg}");
    let (_, svg) = picture(&[segment(0), segment(1)], &[]);
    assert!(svg.contains("of 2 devices: 6.0 KiB reserved"), "{svg}");
    for device in ["device 0", "device 1"] {
        assert!(svg.contains(&format!("<title>{device} (3,072 bytes, 50.00%)")), "{svg}");
    }
    // PyTorch's folded lines contain no devices.
    assert_eq!(
        picture(&[segment(0), segment(1)], &["--folded"])
            .0
            .lines()
            .filter(|line| line.contains("device"))
            .count(),
        0
    );
}

#[test]
fn the_parts_of_a_picture_add_up_to_the_segments() {
    let file = sample("basic-2.pickle");
    let total = |rows: &Value| {
        rows.as_array().unwrap().iter().map(|row| row["size_bytes"].as_i64().unwrap()).sum::<i64>()
    };
    let reserved = json(&["stats"], &[&file])["total_reserved_bytes"].as_i64().unwrap();
    for verb in ["memory", "segments"] {
        let rows = json(&[verb], &[&file])["rows"].clone();
        assert_eq!(total(&rows), reserved);
        assert!(rows.as_array().unwrap().iter().all(|row| row["size_bytes"].as_i64().unwrap() >= 0));
    }
    let events = json(&["trace"], &[&file]);
    assert_eq!(events["devices"][0]["entries"][0]["action"], "segment_alloc");
}

#[test]
fn a_comparison_prints_addresses_and_draws_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (sample("basic-1.pickle"), sample("basic-2.pickle"));
    let output = run(folder.path(), &["compare"], &[&before, &after]);
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = text.lines().take(2).map(|line| line.split(" = ").next().unwrap()).collect();
    assert_eq!(names, ["only_before", "only_after"]);
    assert!(fs::read_to_string(folder.path().join("output.svg")).unwrap().contains("only_after"));
    let value = json(&["compare"], &[&before, &after]);
    let segments = value["only_after"]["segments"].as_array().unwrap();
    assert!(!segments.is_empty());
    let total: u64 = segments.iter().map(|segment| segment["total_bytes"].as_u64().unwrap()).sum();
    assert_eq!(value["only_after"]["total_bytes"], total);
    let expected =
        format!("Only after: {}, {}\n", counted(segments.len() as u64, "segment"), human_bytes(total));
    assert!(text.contains(&expected), "{expected}{text}");
    let largest = segments.iter().max_by_key(|segment| segment["total_bytes"].as_u64()).unwrap();
    assert!(text.contains(&human_bytes(largest["total_bytes"].as_u64().unwrap())), "{text}");
    assert_eq!(run(folder.path(), &["compare", "-", "-"], &[]).status.code(), Some(2));
}

#[test]
fn files_that_pytorch_fails_on_have_an_answer_and_a_warning() {
    for (verb, name, words) in [
        ("stats", "size_mismatch", "do not add up"),
        ("stats", "history_empty_list", "without entries"),
        ("memory", "frames_missing_requested", "no `requested_size`"),
        ("trace", "legacy_list", "no `device_traces`"),
        ("trace", "trace_oom_no_free", "no `device_free`"),
        ("trace", "trace_no_segments_key", "no `allocated_size`"),
        ("trace", "trace_annotate_no_meta", "no `user_metadata`"),
    ] {
        let folded: &[&str] = if verb == "memory" { &[verb, "--folded"] } else { &[verb] };
        let output = run(Path::new("/"), folded, &[&synth(&format!("{name}.pickle"))]);
        let warning = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{warning}");
        assert!(warning.lines().count() == 1 && warning.contains(words), "{verb} {name}: {warning}");
    }
}

#[test]
fn recordings_are_read_like_pytorch_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.memtrack");
    small().save(&file).unwrap();
    // 8 allocations and 4 frees; PyTorch has two events for a free that completes at once.
    let trace = String::from_utf8(run(folder.path(), &["trace"], &[&file]).stdout).unwrap();
    assert!(trace.contains(" entries\n") && trace.matches("\ndel ").count() == 4, "{trace}");
    // At the end: 1001 + 1003 + 1005 + 1007.
    assert_eq!(json(&["summary"], &[&file])["devices"][0]["peak"]["requested_bytes"], 4_016);
    for arguments in [&["stats"][..], &["memory", "--folded"], &["peak"], &["check", "--max-peak", "4016"]] {
        let output = run(folder.path(), arguments, &[&file]);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
    assert_eq!(run(folder.path(), &["check", "--max-peak", "4015"], &[&file]).status.code(), Some(1));
}

/// Every hostile file has the outcome that the manifest lists, within little CPU time and 256 MiB of address space.
#[test]
fn stats_survives_hostile_files() {
    let hostile = oracle("hostile");
    let (folder, memtrack) = (tempfile::tempdir().unwrap(), memtrack());
    let manifest: Value = serde_json::from_slice(&fs::read(hostile.join("manifest.json")).unwrap()).unwrap();
    let mut failures = Vec::new();
    for entry in manifest.as_array().unwrap() {
        let file = entry["file"].as_str().unwrap();
        let mut command = Command::new("sh");
        let output = time::limited(&mut command, time::READS_SECONDS)
            .args(["-c", "ulimit -v 262144; exec \"$@\"", "sh"])
            .args([memtrack.as_os_str(), "stats".as_ref(), hostile.join(file).as_os_str()])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let code = output.status.code();
        let expected = match entry["expect"].as_str().unwrap() {
            "reject" => code == Some(3),
            "accept" => code == Some(0),
            _ => matches!(code, Some(0 | 3)),
        };
        if !expected {
            failures.push(format!("{file}: {:?} ({})", output.status, entry["why"]));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(!folder.path().join("HOSTILE_RAN").exists(), "code from a pickle was run");
}
