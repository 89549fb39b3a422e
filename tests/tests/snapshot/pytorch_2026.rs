//! Reports about data that PyTorch's files have contained since 2026: the pools of blocks, and the program's texts about blocks.

use memtrack_tests::verbs::{json, text};
use serde_json::{Value, json as value};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Returns an event of 2 MiB. All events have the same stack.
fn event(action: &str, at: u64, time: u64, metadata: &str, pool: [u64; 2]) -> Value {
    value!({
        "action": action, "addr": at * 2 * MIB, "size": 2 * MIB, "stream": 0, "time_us": time, "compile_context": "N/A",
        "user_metadata": metadata, "pool_id": pool,
        "frames": [{"name": "make", "filename": "/app/model.py", "line": 7}],
    })
}

/// Returns a segment of three blocks of 2 MiB, the first `used` of which are in use.
fn segment(at: u64, used: u64, pool: Option<[u64; 2]>) -> Value {
    let block = |number: u64| {
        let state = if number < used { "active_allocated" } else { "inactive" };
        value!({"address": (at + number) * 2 * MIB, "size": 2 * MIB, "requested_size": 2 * MIB, "state": state, "frames": []})
    };
    let mut segment = value!({
        "device": 0, "address": at * 2 * MIB, "total_size": 6 * MIB, "allocated_size": used * 2 * MIB,
        "active_size": used * 2 * MIB, "stream": 0, "segment_type": "large", "is_expandable": false, "frames": [],
        "blocks": (0..3).map(block).collect::<Vec<_>>(),
    });
    if let Some(pool) = pool {
        segment["segment_pool_id"] = value!(pool);
    }
    segment
}

fn saved(folder: &Path, segments: Value, events: &[Value]) -> PathBuf {
    let path = folder.join("snapshot.json");
    std::fs::write(&path, value!({"segments": segments, "device_traces": [events]}).to_string()).unwrap();
    path
}

#[test]
fn a_peak_contains_the_programs_texts_about_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let events = [
        event("alloc", 1, 10, "step 3", [0, 0]),
        event("alloc", 2, 20, "step 3", [0, 0]),
        event("alloc", 3, 30, "warm-up", [0, 0]),
        event("alloc", 4, 40, "", [0, 0]),
        event("alloc", 5, 50, "", [0, 0]),
        // A later text about a block replaces the earlier one, and does not apply to later blocks at the same address.
        event("annotate", 5, 60, "weights", [0, 0]),
        event("free_completed", 3, 70, "", [0, 0]),
        event("alloc", 3, 80, "", [0, 0]),
        // The free is the block's only event: the block was live at the peak.
        event("free_completed", 9, 90, "older", [0, 0]),
    ];
    let path = saved(folder.path(), value!([]), &events);
    let row = &json(&["peak"], &path)["devices"][0]["rows"][0];
    let entry = |text: &str, blocks: u64| value!({"text": text, "requested_bytes": blocks * 2 * MIB, "count": blocks});
    assert_eq!(row["user_metadata"], value!([entry("step 3", 2), entry("warm-up", 1), entry("weights", 1)]));
    assert_eq!((&row["count"], &row["user_metadata_in_all"]), (&value!(5), &value!(3)));
    let page = text(&["peak"], &path);
    let words =
        "     user_metadata: step 3  4.0 MiB in 2 blocks\n                    warm-up  2.0 MiB in 1 block\n";
    assert!(page.contains(words) && page.contains("\n     make model.py:7\n"), "{page}");
    assert!(page.contains("     user_metadata: older\n"), "{page}");
    // `top` lists the same blocks, grouped by text.
    let top = json(&["top", "--by", "metadata", "--at", "peak"], &path);
    let names: Vec<_> =
        top["devices"][0]["rows"].as_array().unwrap().iter().map(memtrack_tests::verbs::name).collect();
    assert_eq!(names, ["step 3", "(no text)", "older", "warm-up", "weights"]);
    let later = json(&["top", "--by", "metadata", "--at", "end"], &path);
    assert!(!later.to_string().contains("warm-up"), "the block that came after it has no text");
}

#[test]
fn the_largest_of_many_texts_are_printed_and_missing_ones_are_omitted() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<_> = (1..=40).map(|n| event("alloc", n, n, &format!("tensor {n}"), [0, 0])).collect();
    let path = saved(folder.path(), value!([]), &events);
    let page = text(&["peak"], &path);
    assert!(page.contains("                    … and 37 more texts\n"), "{page}");
    let row = &json(&["peak"], &path)["devices"][0]["rows"][0];
    assert_eq!(
        (row["user_metadata"].as_array().unwrap().len(), &row["user_metadata_in_all"]),
        (10, &value!(40))
    );
    let path = saved(folder.path(), value!([]), &[event("alloc", 1, 1, "", [0, 0])]);
    assert!(!text(&["peak"], &path).contains("user_metadata"));
    // A text may contain terminal control sequences.
    let path = saved(folder.path(), value!([]), &[event("alloc", 1, 1, "a\u{1b}[2Jb", [0, 0])]);
    assert!(text(&["peak"], &path).contains("user_metadata: a\u{fffd}[2Jb\n"));
}

#[test]
fn the_summary_contains_the_memory_of_private_pools() {
    let folder = tempfile::tempdir().unwrap();
    let segments = value!([
        segment(0, 1, Some([0, 0])),
        segment(10, 1, Some([0, 1])),
        segment(20, 2, Some([0, 1])),
        segment(30, 0, Some([3, 0])),
        segment(40, 3, None),
    ]);
    let path = saved(folder.path(), segments, &[event("alloc", 10, 1, "", [0, 1])]);
    let page = text(&["summary"], &path);
    for words in [
        "  Private pools  18.0 MiB reserved in 2 pools, 12.0 MiB of it free for requests of the same pool only\n",
        "                 pool (0, 1): 12.0 MiB in 2 segments, 6.0 MiB allocated in 3 blocks\n",
        "                 pool (3, 0), of a graph capture: 6.0 MiB in 1 segment, 0 B allocated in 0 blocks\n",
    ] {
        assert!(page.contains(words), "{page}");
    }
    let pools = &json(&["summary"], &path)["devices"][0]["private_pools"];
    let mib = |pool: [u64; 2], segments: u64, allocated: u64, blocks: u64| {
        value!({
            "pool": pool, "segments": segments, "reserved_bytes": segments * 6 * MIB, "allocated_bytes": allocated * MIB,
            "allocated_blocks": blocks, "requested_bytes": allocated * MIB, "pending_free_bytes": 0,
            "inactive_bytes": (segments * 6 - allocated) * MIB,
        })
    };
    assert_eq!(*pools, value!([mib([0, 1], 2, 6, 3), mib([3, 0], 1, 0, 0)]));
    let report = json(&["segments"], &path);
    let pool_of = |segment: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        let mut pools: Vec<_> =
            rows.filter(|row| row["segment"] == segment).map(|row| row["pool"].clone()).collect();
        pools.dedup();
        pools
    };
    assert_eq!(pool_of("0x0"), [value!([0, 0])]);
    assert_eq!(pool_of("0x1400000"), [value!([0, 1])]);
    assert_eq!(pool_of("0x3c00000"), [value!([3, 0])]);
    assert_eq!(pool_of("0x5000000"), [Value::Null]);
    // Without private pools, the section is omitted.
    let path = saved(folder.path(), value!([segment(0, 1, Some([0, 0]))]), &[]);
    assert!(!text(&["summary"], &path).contains("pool"));
    assert_eq!(json(&["summary"], &path)["devices"][0]["private_pools"], value!([]));
}
