//! Keys that PyTorch's snapshots have contained since 2026, and rare keys: reports support all of them.

use memtrack_core::analysis::lifetimes::lifetimes;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::memtrack;
use memtrack_tests::snapshots::pickle;
use serde_json::{Value, json};
use std::process::Command;

const DEVICE: DeviceId = DeviceId(0);

fn event(action: &str, addr: u64, size: u64, more: Value) -> Value {
    let mut event =
        json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1000 + addr});
    let more = more.as_object().expect("an object").clone();
    event.as_object_mut().expect("an object").extend(more);
    event
}

fn read(bytes: &[u8]) -> Snapshot {
    Snapshot::open_stream(bytes, LoadOptions::default()).unwrap().snapshot
}

fn snapshot(events: &[Value]) -> Snapshot {
    read(json!({"segments": [], "device_traces": [events]}).to_string().as_bytes())
}

/// Returns the output of a verb for a snapshot of these events.
fn run(events: &[Value], verb: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [events]}).to_string()).unwrap();
    let output = Command::new(memtrack()).arg(verb).arg(&path).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the rows of `top`: names and bytes.
fn rows(events: &[Value], by: &str) -> Vec<(String, u64)> {
    let report: Value = serde_json::from_str(&run(events, "top", &["--by", by, "--json"])).unwrap();
    let rows = report["devices"][0]["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| (memtrack_tests::verbs::name(row), row["requested_bytes"].as_u64().unwrap()))
        .collect()
}

#[test]
fn an_oom_event_with_an_address_shows_the_free_bytes() {
    let events =
        [event("alloc", 4096, 512, json!({})), event("oom", 77, 8 << 20, json!({"device_free": 3_145_728}))];
    assert_eq!(snapshot(&events).oom_free_bytes(1), Some(3 << 20));
    let trace = run(&events, "trace", &[]);
    assert!(trace.contains("raise OutOfMemoryError # 8.0MiB requested, 3.0MiB free in CUDA"), "{trace}");
    let trace: Value = serde_json::from_str(&run(&events, "trace", &["--json"])).unwrap();
    assert_eq!(trace["devices"][0]["entries"][1]["device_free_bytes"], 3 << 20);
    let summary = run(&events, "summary", &["--json"]);
    assert!(summary.contains("\"device_free_bytes\": 3145728"), "{summary}");
    // Writing the snapshot preserves these values.
    let again = read(&pickle(&snapshot(&events)));
    assert_eq!((again.oom_free_bytes(1), again.events.address[1]), (Some(3 << 20), 77));
}

#[test]
fn an_oom_on_a_device_with_room_points_at_the_limit_of_the_process() {
    let summary = |free: u64| {
        let oom = event("oom", free, 64 << 20, json!({"device_free": free}));
        run(&[event("alloc", 4096, 512, json!({})), oom], "summary", &[])
    };
    let advice = "the device had enough free memory: look for a limit of the process, such as \
                  torch.cuda.set_per_process_memory_fraction";
    assert!(summary(100 << 30).contains(advice), "{}", summary(100 << 30));
    // With 100 MiB of free memory, a request of 64 MiB that is rounded up to a power of two and placed in a segment may not
    // fit, so the advice is omitted.
    assert!(!summary(100 << 20).contains("limit of the process"), "{}", summary(100 << 20));
}

#[test]
fn segments_and_traces_may_be_tuples() {
    // The same snapshot twice, in the text protocol: with lists, and with tuples.
    let event = "(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI512\nsS'stream'\nI0\nsS'time_us'\nI9\ns";
    let block =
        "(dS'address'\nI4096\nsS'size'\nI512\nsS'requested_size'\nI500\nsS'state'\nS'active_allocated'\ns";
    let segment = format!(
        "(dS'address'\nI4096\nsS'total_size'\nI2097152\nsS'stream'\nI0\nsS'segment_type'\nS'small'\nsS'blocks'\n(l{block}as"
    );
    let list = |items: &str| format!("(l{items}a");
    let tuple = |items: &str| format!("({items}t");
    let whole = |wrap: &dyn Fn(&str) -> String| {
        let (segments, traces) = (wrap(&segment), wrap(&list(event)));
        format!("(dS'segments'\n{segments}sS'device_traces'\n{traces}s.")
    };
    let (lists, tuples) = (read(whole(&list).as_bytes()), read(whole(&tuple).as_bytes()));
    assert_eq!((lists.segments.len(), lists.blocks.len(), lists.events.len()), (1, 1, 1));
    assert!(lists != tuples && lists.segments == tuples.segments && lists.blocks == tuples.blocks);
    assert!(lists.events == tuples.events);
    // Writing the snapshot preserves the tuples.
    let again = read(&pickle(&tuples));
    assert!(again == tuples);
    assert_eq!(read(b"(dS'segments'\n)sS'device_traces'\n)s.").events.len(), 0);
}

/// Returns a JSON value as a pickle (text protocol); `array` writes the arrays.
fn pickled(value: &Value, array: &dyn Fn(&str) -> String) -> String {
    match value {
        Value::Object(entries) => {
            let items = entries
                .iter()
                .map(|(key, value)| format!("S'{key}'\n{}", pickled(value, array)))
                .collect::<String>();
            format!("({items}d")
        }
        Value::Array(items) => array(&items.iter().map(|item| pickled(item, array)).collect::<String>()),
        Value::String(text) => format!("S'{text}'\n"),
        Value::Null => "N".to_owned(),
        number => format!("I{number}\n"),
    }
}

/// Returns a snapshot with a list in every place that allows one.
fn with_lists() -> Value {
    let frames = json!([{"filename": "a.py", "name": "f", "line": 3}]);
    let block = json!({"address": 4096, "size": 512, "state": "active_allocated",
        "history": [{"addr": 4096, "real_size": 500, "frames": frames}]});
    let other = json!({"address": 4608, "size": 512, "requested_size": 400, "state": "active_allocated", "frames": frames});
    let segment = json!({"device": 0, "address": 4096, "total_size": 1024, "stream": 0, "segment_type": "small",
        "frames": frames, "blocks": [block, other]});
    let event =
        json!({"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 9, "frames": frames});
    json!({"segments": [segment], "device_traces": [[event]],
        "host_segments": [segment], "host_traces": [event],
        "external_annotations": [{"stage": "START", "name": "x", "device": 0, "time_us": 1}]})
}

#[test]
fn every_list_may_be_a_tuple() {
    let whole = with_lists();
    let list = |items: &str| format!("({items}l");
    let tuple = |items: &str| format!("({items}t");
    let [mut lists, tuples] = [&list as &dyn Fn(&str) -> String, &tuple]
        .map(|array| read(format!("{}.", pickled(&whole, array)).as_bytes()));
    assert_eq!((lists.segments.len(), lists.blocks.len(), lists.events.len()), (2, 4, 2));
    assert!(lists.events.stack.iter().all(|stack| stack.0 != 0), "{:?}", lists.events.stack);
    assert!(lists.blocks.iter().all(|block| block.stack.0 != 0), "{:?}", lists.blocks);
    // The snapshot records whether the outermost lists are tuples, in order to write them as tuples again.
    let details = lists.pytorch.as_mut().unwrap();
    (details.segments_are_a_tuple, details.traces_are_a_tuple) = (true, true);
    assert!(lists == tuples);
}

#[test]
fn values_in_place_of_lists_are_refused_with_their_path() {
    for (pointer, value, words) in [
        ("/segments/0/blocks", json!({"address": 1}), "segments[0].blocks is a dictionary"),
        ("/segments/0/blocks", Value::Null, "segments[0].blocks is None"),
        ("/segments/0/blocks", json!([7]), "segments[0].blocks is a list of something else"),
        ("/segments/0/frames", json!("f"), "segments[0].frames is a string"),
        ("/segments/0/blocks/1/frames", json!("f"), "segments[0].blocks[1].frames is a string"),
        ("/segments/0/blocks/0/history", json!(7), "segments[0].blocks[0].history is an integer"),
        ("/segments/0/blocks/0/history", json!(["f"]), "segments[0].blocks[0].history[0] is a string"),
        (
            "/segments/0/blocks/0/history/0/frames",
            json!("f"),
            "segments[0].blocks[0].history[0].frames is a string",
        ),
        ("/device_traces/0", json!({"a": 1}), "device_traces[0] is a dictionary"),
        ("/device_traces/0/0/frames", json!("f"), "device_traces[0][0].frames is a string"),
        ("/device_traces/0/0/frames", json!(["f"]), "device_traces[0][0].frames is a list of something else"),
        ("/host_segments", json!("f"), "host_segments is a string"),
        ("/host_traces", json!("f"), "host_traces is a string"),
        ("/host_traces/0/frames", json!({"a": 1}), "host_traces[0].frames is a dictionary"),
    ] {
        let mut whole = with_lists();
        *whole.pointer_mut(pointer).unwrap() = value;
        let bytes = whole.to_string();
        let error = Snapshot::open_stream(bytes.as_bytes(), LoadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{pointer}: {error}");
    }
    // In a file without stacks, `frames` may be `None`.
    let mut whole = with_lists();
    *whole.pointer_mut("/device_traces/0/0/frames").unwrap() = Value::Null;
    assert_eq!(read(whole.to_string().as_bytes()).events.len(), 2);
}

#[test]
fn rows_are_named_by_pools_and_texts_of_events() {
    let events = [
        event("alloc", 4096, 100, json!({"pool_id": [0, 0], "user_metadata": "load"})),
        event("alloc", 8192, 200, json!({"pool_id": [0, 3], "user_metadata": "step 1"})),
        event("alloc", 16384, 400, json!({"pool_id": [1_u64 << 40, 3], "user_metadata": "step 1"})),
        event("alloc", 32768, 800, json!({"user_metadata": ""})),
    ];
    let expected =
        |rows: &[(&str, u64)]| rows.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect::<Vec<_>>();
    assert_eq!(
        rows(&events, "pool"),
        expected(&[
            ("(unknown pool)", 800),
            ("pool (1099511627776, 3)", 400),
            ("pool (0, 3)", 200),
            ("default pool", 100)
        ])
    );
    assert_eq!(rows(&events, "metadata"), expected(&[("(no text)", 800), ("step 1", 600), ("load", 100)]));
}

/// A trace may begin after a block was allocated, and contain only the block's free.
#[test]
fn blocks_with_only_a_free_were_live_from_the_start() {
    let blocks = |events: &[Value]| {
        let of = |one: &memtrack_core::analysis::lifetimes::Lifetime| (one.from, one.to, one.size_bytes);
        lifetimes(&snapshot(events), DEVICE).iter().map(of).collect::<Vec<_>>()
    };
    let alloc = event("alloc", 4096, 100, json!({}));
    let [requested, completed] =
        ["free_requested", "free_completed"].map(|action| event(action, 8192, 700, json!({})));
    assert_eq!(blocks(&[alloc.clone(), requested.clone(), completed.clone()])[1], (None, Some(1), 700));
    // A trace without `free_requested`.
    assert_eq!(blocks(&[alloc.clone(), completed.clone()])[1], (None, Some(1), 700));
    // If a free was requested before the trace, its completion does not imply that the block was live.
    let other = event("free_requested", 4096, 100, json!({}));
    assert_eq!(blocks(&[alloc, other, completed]).len(), 1);
}
