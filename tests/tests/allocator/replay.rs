//! Replaying a trace with its recorded settings reproduces its peaks; with other settings, the replay shows their effect.

use memtrack_core::allocator::Settings;
use memtrack_core::allocator::replay::{Requests, replay};
use memtrack_core::allocator::workload::{Operation, Workload, record};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::{fixture, memtrack, oracle};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// The numbers of workloads in a folder that were replayed completely and in part.
#[derive(Debug, Default)]
struct Checked {
    /// The number of workloads that were replayed to the end.
    whole: usize,
    /// The number of workloads that were replayed only up to an operation that leaves no event but affects later operations.
    cut: usize,
}

/// Reduces a workload to the part that its trace shows, and returns whether that part is the whole workload. Resets, which no
/// trace shows, are omitted. Settings that change before the first allocation become the initial settings. The workload ends at
/// the first operation that leaves no event but affects later ones: new settings, a new limit, or a pool that is used on out of
/// memory or does not split.
fn as_traced(workload: &mut Workload) -> bool {
    let operations = std::mem::take(&mut workload.operations);
    if let Some(fraction) = workload.config.fraction {
        // The memory fraction becomes a setting, so that the replay applies it too.
        let text = format!("{},per_process_memory_fraction:{fraction}", workload.config.settings);
        workload.settings = Settings::parse(text.trim_start_matches(',')).unwrap();
    }
    let mut allocated = false;
    for operation in operations {
        match &operation {
            Operation::ResetPeak | Operation::ResetAccumulated => continue,
            Operation::Settings { value } if !allocated => {
                // The keys before an invalid one take effect.
                let _ = workload.settings.apply(value);
                workload.config.settings.clone_from(value);
                continue;
            }
            Operation::Settings { .. } | Operation::SetFraction { .. } => return false,
            Operation::BeginPool { use_on_oom, no_split, .. } if *use_on_oom || *no_split => return false,
            Operation::Alloc { .. } => allocated = true,
            _ => {}
        }
        workload.operations.push(operation);
    }
    true
}

/// Replays every workload in a folder.
fn check(folder: &Path) -> Checked {
    let mut checked = Checked::default();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.to_string_lossy().contains(".workload.jsonl")) {
        let mut workload = Workload::read(File::open(path).unwrap(), u64::MAX).unwrap();
        let whole = as_traced(&mut workload);
        let allocates = |operation: &Operation| matches!(operation, Operation::Alloc { .. });
        if !workload.operations.iter().any(allocates) {
            continue;
        }
        *(if whole { &mut checked.whole } else { &mut checked.cut }) += 1;
        let (snapshot, stats) = record(&workload).unwrap();
        let total = workload.config.total_bytes;
        // The limit on the program's memory: for a request that would exceed it, the allocator first releases cached memory.
        let allowed = (workload.settings.initial_fraction() * total as f64) as u64;
        for (ordinal, stats) in stats.iter().enumerate() {
            let requests = Requests::of(&snapshot, DeviceId(ordinal as u16), Some(allowed));
            assert_eq!(requests.settings.as_deref(), Some(workload.settings.text()));
            // The peak that is computed from the trace equals the peak that the allocator counted.
            assert_eq!(requests.recorded_peak.unwrap_or(0), stats.reserved_bytes.all.peak as u64);
            let outcome = replay(&requests, &workload.settings, Some(total)).unwrap();
            let replayed = [
                outcome.peak_reserved_bytes,
                outcome.peak_allocated_bytes,
                outcome.peak_active_bytes,
                outcome.peak_requested_bytes,
                outcome.num_ooms as u64,
                outcome.num_alloc_retries as u64,
            ];
            let recorded_stats = [
                stats.reserved_bytes.all.peak as u64,
                stats.allocated_bytes.all.peak as u64,
                stats.active_bytes.all.peak as u64,
                stats.requested_bytes.all.peak as u64,
                stats.num_ooms as u64,
                stats.num_alloc_retries as u64,
            ];
            assert_eq!(replayed, recorded_stats, "{}, device {ordinal}", path.display());
        }
    }
    checked
}

#[test]
fn a_replay_with_the_same_settings_has_the_same_peaks() {
    let found = check(&fixture("allocator"));
    let oracle = check(&oracle("allocator"));
    assert!(found.whole >= 1 && found.cut >= 1, "{found:?}");
    assert!(oracle.whole >= 39 && oracle.cut >= 14, "{oracle:?}");
}

#[test]
fn settings_are_ordered_by_reserved_memory() {
    let workload = oracle("allocator").join("random-200.workload.jsonl");
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
    assert!(reserved.is_sorted(), "nothing fails here, so only memory determines the order: {reserved:?}");
    let recorded = rows.iter().find(|row| row["recorded"] == true).unwrap();
    assert_eq!(recorded["settings"], "");
    assert_eq!(recorded["peak_reserved_bytes"].as_i64().unwrap(), stats[0].reserved_bytes.all.peak);

    // A device with too little memory.
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

/// Returns the text of `memtrack replay` for a snapshot of these events, and the first device of its JSON.
fn replay_report(events: &[Value], arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let is = |event: &&Value, what: &str| event["action"] == what;
    let is_freed =
        |address: &Value| events.iter().any(|event| is(&event, "segment_free") && &event["addr"] == address);
    let live = events.iter().filter(|event| is(event, "segment_alloc") && !is_freed(&event["addr"]));
    let segment = |event: &Value| json!({"device": 0, "address": event["addr"], "total_size": event["size"], "stream": 0, "blocks": []});
    let segments: Vec<_> = live.map(segment).collect();
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

fn trace_event(action: &str, address: u64, size: u64) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": []})
}

/// Returns the events of `count` blocks of 6 MiB that are never freed, three in each segment of 20 MiB. The trace contains the
/// allocations of only `traced_segments` segments.
fn blocks(count: u64, traced_segments: u64) -> Vec<Value> {
    let mut events: Vec<_> = (0..traced_segments)
        .map(|n| trace_event("segment_alloc", (1 << 40) + n * (20 << 20), 20 << 20))
        .collect();
    events.extend((0..count).map(|n| trace_event("alloc", (1 << 40) + n * (6 << 20), 6 << 20)));
    events
}

#[test]
fn too_few_requests_give_no_recommendation() {
    let (text, value) = replay_report(&blocks(1, 1), &[]);
    assert!(text.starts_with("Device 0: 1 request replayed"), "{text}");
    assert!(text.contains("No recommendation: 1 request within the trace is too few"), "{text}");
    assert!(value["recommended"].is_null() && value["advice"].is_string());
}

#[test]
fn a_replay_that_does_not_reproduce_the_recording_gives_no_recommendation() {
    // 14 segments are needed, and one is in the trace.
    let (text, value) = replay_report(&blocks(40, 1), &[]);
    let why = "Under the defaults (the file does not name its settings) it reserves 280.0 MiB, the recording itself 20.0 MiB";
    assert!(text.contains(why) && text.contains("No recommendation"), "{text}");
    assert_eq!(value["reproduced_peak_reserved_bytes"], 280 << 20);
    // If the replay reproduces the peak, there is a recommendation: expandable segments waste nothing at the ends of segments.
    let (text, value) = replay_report(&blocks(61, 21), &["--set", "", "--set", "expandable_segments:True"]);
    assert!(
        text.contains("Recommended: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (reserves "),
        "{text}"
    );
    assert_eq!(value["recommended"], "expandable_segments:True");
}

#[test]
fn gains_below_one_percent_are_not_recommended() {
    // Ten segments that each waste 2 MiB, and a block of 6,000 MiB.
    let mut events = blocks(30, 10);
    events.extend(["segment_alloc", "alloc"].map(|what| trace_event(what, 1 << 50, 6_000 << 20)));
    let (text, value) = replay_report(&events, &["--set", "", "--set", "expandable_segments:True"]);
    assert!(text.contains("saves 20.0 MiB (0.3 %), not worth a change"), "{text}");
    assert!(value["recommended"].is_null());
}

/// The blocks need more memory than any device has.
#[test]
fn memory_without_a_capacity_is_unlimited() {
    let size = 64 << 30;
    let large = |n: u64| ["segment_alloc", "alloc"].map(|what| trace_event(what, (1 << 50) + n * size, size));
    let events: Vec<_> = (0..40).flat_map(large).collect();
    let (text, value) = replay_report(&events, &["--set", "", "--set", "expandable_segments:True"]);
    for row in value["settings"].as_array().unwrap() {
        assert_eq!(
            (&row["first_oom"], &row["peak_reserved_bytes"]),
            (&Value::Null, &(40 * size).into()),
            "{text}"
        );
    }
}

#[test]
fn failures_after_the_first_are_counted_separately() {
    let (text, value) = replay_report(&blocks(60, 3), &["--set", "", "--capacity", "25MiB"]);
    assert!(text.contains("first fails at request 4 of 60; 56 requests after it failed too"), "{text}");
    let row = &value["settings"][0];
    assert_eq!((&row["first_oom"], &row["failed_requests"]), (&3.into(), &57.into()));
}

#[test]
fn a_replay_without_a_caching_allocator_states_its_assumption() {
    let events: Vec<Value> = (0..30u64)
        .flat_map(|n| {
            let (address, size) = ((1 << 40) + (n << 30), 1_000_000 + n);
            ["segment_alloc", "alloc", "free_completed", "segment_free"]
                .map(|what| trace_event(what, address, size))
        })
        .collect();
    let (text, value) = replay_report(&events, &[]);
    assert!(
        text.contains("calls of the driver, one for each block") && !text.contains("Recommended"),
        "{text}"
    );
    assert_eq!(value["driver_calls"], true);
    // A trace without frees, as under a caching allocator, is recognized too.
    let retained = events.iter().filter(|event| !event["action"].as_str().unwrap().contains("free")).cloned();
    assert_eq!(replay_report(&retained.collect::<Vec<_>>(), &[]).1["driver_calls"], true);
    // PyTorch's allocator places several blocks in each segment.
    assert_eq!(replay_report(&blocks(40, 2), &[]).1["driver_calls"], false);
}

#[test]
fn host_memory_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.memtrack");
    fs::write(&path, memtrack_tests::snapshots::small().save_to(Vec::new()).unwrap()).unwrap();
    let run = |arguments: &[&str]| {
        Command::new(memtrack()).arg("replay").arg(&path).args(arguments).output().unwrap()
    };
    assert_eq!(run(&[]).stdout, b"The snapshot holds no events of a device to replay.\n");
    let output = run(&["--device", "host"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not the host's"));
}
