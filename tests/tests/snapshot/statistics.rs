//! The values that memtrack derives from the segments of a snapshot equal PyTorch's statistics at the same moment, for each
//! device and for its small and large pools.

use flate2::read::GzDecoder;
use memtrack_core::analysis::held::HeldMemory;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_tests::{fixture, oracle};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Returns the current values that memtrack derives from the segments, under PyTorch's names.
fn derived(held: &HeldMemory) -> [(&'static str, u64); 9] {
    [
        ("allocation", held.blocks),
        ("allocated_bytes", held.allocated),
        ("requested_bytes", held.requested + held.pending_requested),
        ("active", held.blocks + held.pending_blocks),
        ("active_bytes", held.active()),
        // PyTorch's number of segments does not include expandable segments.
        ("segment", held.segments - held.expandable),
        ("reserved_bytes", held.reserved),
        ("inactive_split", held.inactive_split_blocks),
        ("inactive_split_bytes", held.inactive_split),
    ]
}

/// Returns a workload's segments as a PyTorch snapshot, with a separate address range for each `seg`.
fn snapshot_of<'a>(segments: impl IntoIterator<Item = &'a Value>) -> Snapshot {
    let dictionaries = segments.into_iter().map(|segment| {
        let base = (segment["seg"].as_u64().unwrap() + 1) << 40;
        let block = |block: &Value| {
            json!({
                "address": base + block[0].as_u64().unwrap(),
                "size": block[1],
                "requested_size": block[2],
                "state": block[3],
                "frames": [],
            })
        };
        let mut dictionary = segment.clone();
        dictionary["address"] = (base + segment["off"].as_u64().unwrap()).into();
        dictionary["blocks"] = segment["blocks"].as_array().unwrap().iter().map(block).collect();
        dictionary
    });
    let text = json!({ "segments": dictionaries.collect::<Vec<_>>(), "device_traces": [] }).to_string();
    Snapshot::open_stream(text.as_bytes(), LoadOptions::default()).unwrap().snapshot
}

/// Returns the statistics and the segments that a workload lists for the same moment: in one line, or in two adjacent lines.
fn moments(lines: &[Value]) -> Vec<(&Value, &Value)> {
    let mut found = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let next = lines.get(place + 1);
        let adjacent = |key: &str| next.map(|next| &next[key]).filter(|value| !value.is_null());
        match (&line["stats"], &line["segments"]) {
            (Value::Null, Value::Null) => {}
            (Value::Null, segments) => found.extend(adjacent("stats").map(|stats| (stats, segments))),
            (stats, Value::Null) => found.extend(adjacent("segments").map(|segments| (stats, segments))),
            both => found.push(both),
        }
    }
    found
}

fn lines(path: &Path) -> Vec<Value> {
    let bytes = fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|suffix| suffix == "gz") {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    // Only these lines are parsed, because there are many others.
    let parsed = |line: &str| serde_json::from_str(line).unwrap();
    let is_needed = |line: &&str| line.contains("\"stats\":") || line.contains("\"segments\":");
    text.lines().map(|line| if is_needed(&line) { parsed(line) } else { Value::Null }).collect()
}

/// Compares every value at every moment of a workload; returns the number of compared values.
fn check(path: &Path) -> usize {
    let mut equal = 0;
    let lines = lines(path);
    for (moment, (stats, segments)) in moments(&lines).into_iter().enumerate() {
        for pool in ["all", "small_pool", "large_pool"] {
            let of_pool = |segment: &&Value| {
                pool == "all" || pool.strip_suffix("_pool") == segment["segment_type"].as_str()
            };
            let snapshot = snapshot_of(segments.as_array().unwrap().iter().filter(of_pool));
            let snapshot = PytorchSnapshot::try_from(snapshot).unwrap();
            for (device, stats) in stats.as_array().unwrap().iter().enumerate() {
                let held = HeldMemory::of(&snapshot, DeviceId(device as u16));
                for (name, value) in derived(&held) {
                    let reported = stats[format!("{name}.{pool}.current")].as_u64();
                    // A device that was never used has no statistics.
                    let reported = reported.or(stats.as_object().filter(|stats| stats.is_empty()).map(|_| 0));
                    let place = format!("{}, moment {moment}, device {device}", path.display());
                    assert_eq!(Some(value), reported, "{place}: {name}.{pool}");
                    equal += 1;
                }
            }
        }
    }
    equal
}

fn check_folder(folder: &Path) -> usize {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        let name = path.to_string_lossy();
        name.contains(".jsonl") && !name.contains(".workload.")
    });
    files.sort();
    files.iter().map(|path| check(path)).sum()
}

#[test]
fn all_workloads_statistics_are_derived_from_their_segments() {
    let equal = check_folder(&oracle("allocator"));
    println!("{equal} values equal");
    assert!(equal > 4000, "{equal}");
}

/// The table contains the current values of all memory, the large pool and the small pool, in this order of rows.
#[test]
fn pytorchs_memory_summary_agrees_with_its_snapshot() {
    let text = fs::read_to_string(fixture("statistics/basic-2.memory_summary.txt")).unwrap();
    let path = fixture("snapshots/samples/basic-2.pickle");
    let snapshot = Snapshot::open(path, LoadOptions::default()).unwrap().snapshot;
    let snapshot = PytorchSnapshot::try_from(snapshot).unwrap();
    let held = HeldMemory::of(&snapshot, DeviceId(0));
    let names = [
        ("Allocations", "allocation"),
        ("Allocated memory", "allocated_bytes"),
        ("Requested memory", "requested_bytes"),
        ("Active allocs", "active"),
        ("Active memory", "active_bytes"),
        ("GPU reserved segments", "segment"),
        ("GPU reserved memory", "reserved_bytes"),
        ("Non-releasable allocs", "inactive_split"),
        ("Non-releasable memory", "inactive_split_bytes"),
    ];
    for ((row, name), (derived_name, value)) in names.into_iter().zip(derived(&held)) {
        assert_eq!(name, derived_name);
        let line = text.lines().find(|line| line.starts_with(&format!("| {row} "))).unwrap();
        let reported = line.split('|').nth(2).unwrap().trim();
        let value = if name.ends_with("bytes") { format!("{} KiB", value >> 10) } else { value.to_string() };
        assert_eq!(value, reported, "{row}");
    }
}
