//! A program with few annotations, as memtrack's verbs report it: all verbs use the operator names of `top`, and mark estimates
//! that are based on sampled blocks.

use memtrack_core::recorder::Options;
use memtrack_core::{scope, start_monitor_with, stop, track_memory};
use memtrack_tests::{alone, memtrack};
use serde_json::Value;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

/// The number of elements in the operator's table, which takes most of the program's memory.
const TABLE: usize = 1 << 20;
/// The number of elements that the operator returns.
const KEPT: usize = 1 << 16;

/// An operator without tensors.
#[track_memory]
fn crowding(kept: usize) -> Vec<u64> {
    let table = vec![1_u64; TABLE];
    let result = table.iter().copied().take(kept).collect();
    black_box(&table);
    result
}

/// A model with one layer.
#[track_memory(root)]
fn forward() -> (Vec<u64>, Vec<u64>) {
    let hidden = {
        let _layer = scope::module("layer");
        vec![2_u64; KEPT]
    };
    (hidden, crowding(KEPT))
}

#[track_memory(backward)]
fn backward(kept: &(Vec<u64>, Vec<u64>)) {
    black_box(vec![3_u64; kept.0.len()]);
}

/// Returns many small blocks.
fn small_blocks() -> Vec<Box<[u8]>> {
    (0..60_000).map(|number| vec![1; 64 + number % 64].into_boxed_slice()).collect()
}

fn train() {
    for _ in 0..3 {
        let kept = forward();
        backward(&kept);
    }
}

fn text(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(memtrack()).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str], folder: &Path) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat(), folder)).unwrap()
}

/// Returns the row of `rows` whose `name_key` is `name`.
fn find<'a>(rows: &'a Value, name_key: &str, name: &str) -> &'a Value {
    let row = rows.as_array().unwrap().iter().find(|row| row[name_key] == name);
    row.unwrap_or_else(|| panic!("no {name} in {rows:#}"))
}

#[test]
fn every_verb_uses_the_operator_names_of_top() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    start_monitor_with(&Options::new().exact().operators()).unwrap();
    train();
    stop().save(folder.join("run.memtrack")).unwrap();

    let top = json(&["top", "--by", "operator", "--at", "peak", "run.memtrack"], folder);
    let categories = json(&["categories", "--at", "peak", "run.memtrack"], folder);
    let moment = &categories["devices"][0]["moments"][0];
    let bytes = |rows, name| find(rows, "name", name)["requested_bytes"].as_u64().unwrap();
    // The operator's row contains the table and the result; the table is freed when the operator returns.
    let operators = &moment["operators"]["rows"];
    assert!(bytes(operators, "forward.crowding") >= 8 * (TABLE + KEPT) as u64, "{moment:#}");
    for row in top["devices"][0]["rows"].as_array().unwrap() {
        let row_of = |rows: &Value| {
            rows.as_array().unwrap().iter().find(|other| other["name"] == row["name"]).cloned()
        };
        let same = row_of(operators).unwrap_or_else(|| panic!("no {row} in {operators:#}"));
        assert_eq!(same["requested_bytes"], row["requested_bytes"], "{row}");
    }
    let by_module = json(&["top", "--by", "module", "--at", "peak", "run.memtrack"], folder);
    let row = find(&by_module["devices"][0]["rows"], "name", "layer");
    assert_eq!(find(&moment["modules"]["rows"], "name", "layer")["requested_bytes"], row["requested_bytes"]);
    // The table is temporary, and the results of the forward pass are activations, in every verb.
    let category = |name| find(&moment["categories"], "category", name)["requested_bytes"].as_u64().unwrap();
    assert_eq!(category("TEMPORARY"), 8 * TABLE as u64, "{moment:#}");
    assert_eq!(category("ACTIVATION"), 2 * 8 * KEPT as u64, "{moment:#}");
    let summary = json(&["summary", "run.memtrack"], folder);
    let peak = json(&["peak", "run.memtrack"], folder);
    for rows in [&summary["devices"][0]["peak"]["categories"], &peak["devices"][0]["categories"]] {
        assert_eq!(bytes(rows, "temporary"), 8 * TABLE as u64);
        assert_eq!(bytes(rows, "activation"), 2 * 8 * KEPT as u64);
    }
    // Nothing was sampled, so nothing has an error.
    assert!(
        moment["requested_bytes_error"].is_null()
            && !text(&["categories", "run.memtrack"], folder).contains('±')
    );

    // The advice begins with the line that holds most, mentions no other devices, and omits findings that save next to nothing.
    let advice = json(&["advise", "run.memtrack"], folder);
    let first = &advice["largest"][0];
    assert!(first["name"].as_str().unwrap().contains("verbs.rs:"), "{advice:#}");
    assert!(
        first["requested_bytes"].as_u64().unwrap() >= 8 * TABLE as u64
            && first["share"].as_f64().unwrap() > 0.8
    );
    let by_line = json(&["top", "--by", "line", "--at", "peak", "run.memtrack"], folder);
    assert_eq!(first["name"], by_line["devices"][0]["rows"][0]["name"]);
    assert_eq!(first["requested_bytes"], by_line["devices"][0]["rows"][0]["requested_bytes"]);
    assert_eq!(advice["device"]["name"], "host heap");
    let peak_bytes = advice["peak_bytes"].as_u64().unwrap();
    let summary_peak = &summary["devices"][0]["peak"]["requested_bytes"];
    assert_eq!((&advice["peak_bytes"], &moment["requested_bytes"]), (summary_peak, summary_peak));
    for finding in advice["findings"].as_array().unwrap() {
        assert!(finding["saves_bytes"].as_u64().unwrap() >= peak_bytes / 100, "{finding:#}");
    }
    let words = text(&["advise", "-n", "0", "run.memtrack"], folder);
    assert!(words.lines().nth(2).unwrap().contains("verbs.rs:"), "{words}");
    for wrong in ["FSDP", "among devices", "host memory"] {
        assert!(!words.contains(wrong), "{words}");
    }
}

#[test]
fn sums_over_samples_have_an_error_in_every_verb() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    start_monitor_with(&Options::new().sample(64 << 10, 16 << 10).operators()).unwrap();
    let small = small_blocks();
    train();
    let recording = stop();
    drop(small);
    recording.save(folder.join("run.memtrack")).unwrap();

    // About five MiB in small blocks give about 300 samples.
    let categories = json(&["categories", "run.memtrack"], folder);
    let moments = categories["devices"][0]["moments"].as_array().unwrap();
    let error = |row: &Value| !row["requested_bytes_error"].is_null();
    let unknown = find(&moments[0]["categories"], "category", "UNKNOWN");
    assert!(error(unknown) && unknown["requested_bytes"].as_u64().unwrap() > 2 << 20, "{unknown}");
    assert!(!unknown["count_error"].is_null());
    // All reports show the same peak, with its error if it has one.
    let peak = json(&["peak", "run.memtrack"], folder);
    let highest = &peak["devices"][0]["highest"];
    let same = |report: &Value, bytes, error| {
        assert_eq!(
            (&report[bytes], &report[error]),
            (&highest["requested_bytes"], &highest["requested_bytes_error"])
        );
    };
    same(&moments[0], "requested_bytes", "requested_bytes_error");
    // At the end of the recording, the total is the recorder's count, which is exact.
    assert!(!error(&moments[1]), "{}", moments[1]);
    let text_of = |verb: &str| text(&[verb, "run.memtrack"], folder);
    assert!(text_of("categories").contains('±'));
    let advice = json(&["advise", "run.memtrack"], folder);
    same(&advice, "peak_bytes", "peak_bytes_error");
    assert!(!advice["unseen_bytes_error"].is_null(), "{advice:#}");
    let parts = advice["largest"].as_array().unwrap();
    assert!(parts.iter().any(error), "{advice:#}");
    assert!(text_of("advise").contains('±'));
    let modules = json(&["modules", "run.memtrack"], folder);
    let before = &modules["modules"][0]["calls"][0]["forward"]["before"];
    assert!(modules["estimated"] == true && !before["allocated_bytes_error"].is_null(), "{modules:#}");
    assert!(text_of("modules").contains('±'));
    text(&["timeline", "run.memtrack", "-o", "run.svg"], folder);
    let picture = std::fs::read_to_string(folder.join("run.svg")).unwrap();
    assert!(picture.contains("small blocks were sampled") && picture.contains('±'), "{picture}");
    // `peak` and `categories` agree on the bytes without a category.
    let no_category = find(&peak["devices"][0]["categories"], "why_no_name", "no category");
    assert_eq!(no_category["requested_bytes"], unknown["requested_bytes"]);
}
