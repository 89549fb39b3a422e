//! A trace replayed under its own settings comes to the same peaks; under others, to what the allocator then does.

use flate2::read::GzDecoder;
use memtrack_core::allocator::replay::{Requests, replay};
use memtrack_core::allocator::workload::{Operation, Workload, record};
use memtrack_core::event::DeviceId;
use memtrack_tests::{fixture, memtrack, shared};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// Replays every workload of a folder whose trace tells all that happened; how many there were.
fn check(folder: &Path) -> usize {
    let mut checked = 0;
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.to_string_lossy().contains(".workload.jsonl")) {
        let workload = Workload::read(File::open(path).unwrap(), u64::MAX).unwrap();
        // What leaves no event cannot be replayed: limits, settings and resets in mid-run, and pools that lend.
        let silent = |operation: &Operation| match operation {
            Operation::SetFraction { .. }
            | Operation::Settings { .. }
            | Operation::ResetPeak
            | Operation::ResetAccumulated => true,
            Operation::BeginPool { use_on_oom, no_split, .. } => *use_on_oom || *no_split,
            _ => false,
        };
        if workload.operations.iter().any(silent)
            || workload.config.fraction.is_some()
            || workload.settings.initial_fraction() < 1.0
        {
            continue;
        }
        checked += 1;
        let (snapshot, stats) = record(&workload).unwrap();
        let capacity = Some(workload.config.total_bytes);
        for (ordinal, stats) in stats.iter().enumerate() {
            let requests = Requests::of(&snapshot, DeviceId(ordinal as u16), capacity);
            assert_eq!(requests.settings.as_ref(), Some(&workload.config.settings));
            // The trace's own peak is PyTorch's too.
            assert_eq!(requests.recorded_peak.unwrap_or(0), stats.reserved_bytes.all.peak as u64);
            let outcome = replay(&requests, &workload.settings, capacity).unwrap();
            let ours = [
                outcome.peak_reserved_bytes,
                outcome.peak_allocated_bytes,
                outcome.peak_active_bytes,
                outcome.peak_requested_bytes,
                outcome.num_ooms as u64,
                outcome.num_alloc_retries as u64,
            ];
            let theirs = [
                stats.reserved_bytes.all.peak as u64,
                stats.allocated_bytes.all.peak as u64,
                stats.active_bytes.all.peak as u64,
                stats.requested_bytes.all.peak as u64,
                stats.num_ooms as u64,
                stats.num_alloc_retries as u64,
            ];
            assert_eq!(ours, theirs, "{}, device {ordinal}", path.display());
        }
    }
    checked
}

#[test]
fn a_replay_under_the_same_settings_comes_to_the_same_peaks() {
    assert!(check(&fixture("allocator")) >= 6);
    if let Some(shared) = shared() {
        assert!(check(&shared.join("oracle/allocator")) >= 25);
    }
}

/// What PyTorch's own snapshot of the same run lists, ours does too, in the same order.
#[test]
fn the_dumped_snapshot_has_pytorchs_structure() {
    let workload = fixture("allocator").join("pending-frees.workload.jsonl");
    let workload = Workload::read(File::open(workload).unwrap(), u64::MAX).unwrap();
    let (snapshot, _) = record(&workload).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let mut symbols = memtrack_core::stack::symbols::Symbolizer::of(&snapshot);
    snapshot.save_as(&path, &mut symbols).unwrap();
    let ours: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut expected = String::new();
    let file = File::open(fixture("allocator").join("pending-frees.expected.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut expected).unwrap();
    let lines: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = lines.iter().filter_map(|line| line["events"].as_array()).flatten();
    let theirs: Vec<_> = events.map(|event| (event[1].clone(), event[4].clone())).collect();
    let trace = ours["device_traces"][0].as_array().unwrap();
    let actions: Vec<_> =
        trace.iter().map(|event| (event["action"].clone(), event["size"].clone())).collect();
    assert_eq!(actions, theirs);
    let last = lines.last().unwrap();
    assert_eq!(ours["allocator_settings"], last["allocator_settings"]);
    for (ours, theirs) in
        ours["segments"].as_array().unwrap().iter().zip(last["segments"].as_array().unwrap())
    {
        for key in [
            "device",
            "total_size",
            "allocated_size",
            "active_size",
            "requested_size",
            "stream",
            "segment_type",
            "segment_pool_id",
            "is_expandable",
        ] {
            assert_eq!(ours[key], theirs[key], "{key}");
        }
        let blocks = ours["blocks"].as_array().unwrap().iter();
        let blocks: Vec<_> = blocks.map(|b| (&b["size"], &b["requested_size"], &b["state"])).collect();
        let expected = theirs["blocks"].as_array().unwrap().iter();
        let expected: Vec<_> = expected.map(|b| (&b[1], &b[2], &b[3])).collect();
        assert_eq!(blocks, expected);
    }
}

#[test]
fn the_verb_recommends_what_needs_least() {
    let workload = fixture("allocator").join("random-200.workload.jsonl");
    let (snapshot, stats) =
        record(&Workload::read(File::open(workload).unwrap(), u64::MAX).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.pickle");
    let mut symbols = memtrack_core::stack::symbols::Symbolizer::of(&snapshot);
    snapshot.save_as(&path, &mut symbols).unwrap();
    let run = |arguments: &[&str]| {
        Command::new(memtrack()).arg("replay").arg(&path).args(arguments).output().unwrap()
    };

    let output = run(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["devices"][0]["settings"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let reserved: Vec<u64> = rows.iter().map(|row| row["peak_reserved_bytes"].as_u64().unwrap()).collect();
    assert!(reserved.is_sorted(), "nothing fails here, so memory alone ranks: {reserved:?}");
    let recorded = rows.iter().find(|row| row["recorded"] == true).unwrap();
    assert_eq!(recorded["settings"], "");
    assert_eq!(recorded["peak_reserved_bytes"].as_i64().unwrap(), stats[0].reserved_bytes.all.peak);

    // A device that is too small.
    let output = run(&["--set", "expandable_segments:True", "--capacity", "64MiB"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("64.0 MiB of memory") && text.contains("None of these settings fits"), "{text}");

    let output = run(&["--set", "colour:blue"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("Unrecognized key 'colour'"), "{error}");

    let output = run(&["--set", "backend:cudaMallocAsync"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("only PyTorch's native allocator can be replayed"), "{error}");
}

/// What `memtrack replay` says about a snapshot of these events.
fn said(events: &[Value], arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let is = |event: &&Value, what: &str| event["action"] == what;
    let gone =
        |address: &Value| events.iter().any(|event| is(&event, "segment_free") && &event["addr"] == address);
    let held = events.iter().filter(|event| is(event, "segment_alloc") && !gone(&event["addr"]));
    let segment = |event: &Value| json!({"device": 0, "address": event["addr"], "total_size": event["size"], "stream": 0, "blocks": []});
    let segments: Vec<_> = held.map(segment).collect();
    fs::write(&path, json!({"segments": segments, "device_traces": [events]}).to_string()).unwrap();
    let run = |more: &[&str]| {
        let output =
            Command::new(memtrack()).arg("replay").arg(&path).args(arguments).args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let value: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    (run(&[]), value["devices"][0].clone())
}

fn happened(action: &str, address: u64, size: u64) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": []})
}

/// `count` blocks of 6 MiB that stay: a segment of 20 MiB holds three of them. So many of the segments are in the trace.
fn blocks(count: u64, segments_told: u64) -> Vec<Value> {
    let mut events: Vec<_> =
        (0..segments_told).map(|n| happened("segment_alloc", (1 << 40) + n * (20 << 20), 20 << 20)).collect();
    events.extend((0..count).map(|n| happened("alloc", (1 << 40) + n * (6 << 20), 6 << 20)));
    events
}

#[test]
fn nothing_is_recommended_on_the_strength_of_a_few_requests() {
    let (text, value) = said(&blocks(1, 1), &[]);
    assert!(text.starts_with("Device 0: 1 request replayed"), "{text}");
    assert!(text.contains("No recommendation: 1 request within the trace is too few"), "{text}");
    assert!(value["recommended"].is_null() && value["advice"].is_string());
}

#[test]
fn nothing_is_recommended_where_the_recording_is_not_reproduced() {
    // 14 segments are needed, and one is in the trace.
    let (text, value) = said(&blocks(40, 1), &[]);
    let why = "Under the defaults (the file does not name its settings) it reserves 280.0 MiB, the recording itself 20.0 MiB";
    assert!(text.contains(why) && text.contains("No recommendation"), "{text}");
    assert_eq!(value["reproduced_peak_reserved_bytes"], 280 << 20);
    // Where both agree, something is: expandable segments have no ends to waste.
    let (text, value) = said(&blocks(61, 21), &["--set", "", "--set", "expandable_segments:True"]);
    assert!(
        text.contains("Recommended: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (reserves "),
        "{text}"
    );
    assert_eq!(value["recommended"], "expandable_segments:True");
}

#[test]
fn gains_below_one_percent_are_not_recommended() {
    // Ten segments that each waste 2 MiB, beside a block of 6,000 MiB.
    let mut events = blocks(30, 10);
    events.extend(["segment_alloc", "alloc"].map(|what| happened(what, 1 << 50, 6_000 << 20)));
    let (text, value) = said(&events, &["--set", "", "--set", "expandable_segments:True"]);
    assert!(text.contains("saves 20.0 MiB (0.3 %), not worth a change"), "{text}");
    assert!(value["recommended"].is_null());
}

/// More than any device has.
#[test]
fn memory_without_a_stated_end_has_none() {
    let size = 64 << 30;
    let large = |n: u64| ["segment_alloc", "alloc"].map(|what| happened(what, (1 << 50) + n * size, size));
    let events: Vec<_> = (0..40).flat_map(large).collect();
    let (text, value) = said(&events, &["--set", "", "--set", "expandable_segments:True"]);
    for row in value["settings"].as_array().unwrap() {
        assert_eq!(
            (&row["first_oom"], &row["peak_reserved_bytes"]),
            (&Value::Null, &(40 * size).into()),
            "{text}"
        );
    }
}

#[test]
fn failures_after_the_first_are_told_as_what_they_are() {
    let (text, value) = said(&blocks(60, 3), &["--set", "", "--capacity", "25MiB"]);
    assert!(text.contains("first fails at request 4 of 60; 56 requests after it failed too"), "{text}");
    let row = &value["settings"][0];
    assert_eq!((&row["first_oom"], &row["failed_requests"]), (&3.into(), &57.into()));
}

#[test]
fn of_a_program_without_an_allocator_the_replay_says_what_it_assumes() {
    let events: Vec<Value> = (0..30u64)
        .flat_map(|n| {
            let (address, size) = ((1 << 40) + (n << 30), 1_000_000 + n);
            ["segment_alloc", "alloc", "free_completed", "segment_free"]
                .map(|what| happened(what, address, size))
        })
        .collect();
    let (text, value) = said(&events, &[]);
    assert!(
        text.contains("calls of the driver, one for each block") && !text.contains("Recommended"),
        "{text}"
    );
    assert_eq!(value["driver_calls"], true);
    // The driver below a caching allocator gives no less away.
    let held = events.iter().filter(|event| !event["action"].as_str().unwrap().contains("free")).cloned();
    assert_eq!(said(&held.collect::<Vec<_>>(), &[]).1["driver_calls"], true);
    // PyTorch keeps its segments.
    assert_eq!(said(&blocks(40, 2), &[]).1["driver_calls"], false);
}

#[test]
fn the_memory_of_the_host_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.memtrack");
    fs::write(&path, memtrack_tests::snapshots::small().save_to(Vec::new()).unwrap()).unwrap();
    let run = |arguments: &[&str]| {
        Command::new(memtrack()).arg("replay").arg(&path).args(arguments).output().unwrap()
    };
    assert_eq!(run(&[]).stdout, b"The snapshot holds no events of a device to replay.\n");
    let asked = run(&["--device", "host"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("not the host's"));
}
