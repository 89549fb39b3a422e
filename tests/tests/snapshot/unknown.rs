//! Values that a file does not contain are unknown: null in JSON, omitted or marked as unknown in text output, and never zero.

use memtrack_tests::verbs::piped;
use serde_json::{Value, json};

fn run(whole: &Value, verb: &str, arguments: &[&str]) -> (i32, String) {
    let output = piped(&[&[verb, "-"], arguments].concat(), whole.to_string().as_bytes());
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn device(whole: &Value, verb: &str) -> Value {
    let output = piped(&[verb, "-", "--json"], whole.to_string().as_bytes());
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["devices"][0].clone()
}

fn event(action: &str, more: Value) -> Value {
    let mut event = json!({"action": action, "size": 512, "stream": 0, "time_us": 1000});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[test]
fn a_devices_free_bytes_at_out_of_memory_may_be_unknown() {
    let with = |oom: Value| json!({"segments": [], "device_traces": [[event("alloc", json!({"addr": 4096})), event("oom", oom)]]});
    for unknown in [json!({}), json!({"addr": 77}), json!({"device_free": null})] {
        let whole = with(unknown);
        assert_eq!(device(&whole, "summary")["out_of_memory"][0]["device_free_bytes"], Value::Null);
        let (_, text) = run(&whole, "summary", &[]);
        assert!(text.contains("event 1: 512 B requested, 512 B live in 1 block"), "{text}");
    }
    let known = with(json!({"device_free": 0}));
    assert_eq!(device(&known, "summary")["out_of_memory"][0]["device_free_bytes"], 0);
    assert!(run(&known, "summary", &[]).1.contains("512 B requested, 0 B free on the device, 512 B live"));
}

#[test]
fn held_memory_is_unknown_in_a_file_without_segments() {
    let whole = json!({"device_traces": [[event("alloc", json!({"addr": 4096}))]]});
    let summary = device(&whole, "summary");
    for name in [
        "allocated_bytes",
        "allocated_blocks",
        "requested_bytes",
        "active_bytes",
        "segments",
        "reserved_bytes",
        "reserved_peak_bytes",
        "inactive_bytes",
        "fragmentation",
        "internal_free_bytes",
        "pending_free_bytes",
        "private_pools",
    ] {
        assert_eq!(summary[name], Value::Null, "{name}");
    }
    assert_eq!(summary["peak"]["requested_bytes"], 512);
    let (_, text) = run(&whole, "summary", &[]);
    assert!(text.contains("Allocated      unknown, as are reserved bytes and fragmentation"), "{text}");
    assert!(!text.contains("Fragmentation ") && text.contains("Peak           512 B requested"), "{text}");
    let (code, text) = run(&whole, "check", &["--max-fragmentation", "10%"]);
    assert!(code != 0 && text.contains("cannot check -: it has no segments"), "{code}: {text}");
    assert_eq!(run(&whole, "check", &["--max-peak", "1KiB"]).0, 0);
    // An empty list of segments means that no memory is held.
    let none = json!({"segments": [], "device_traces": whole["device_traces"]});
    assert_eq!(device(&none, "summary")["allocated_bytes"], 0);
}

/// In files of PyTorch before 2.1, the history of a block contains the requested size.
#[test]
fn block_histories_of_older_files_contain_the_requested_size() {
    let block = |history: Value| json!({"address": 4096, "size": 1024, "state": "active_allocated", "history": history});
    let with = |block: Value| {
        json!([{"device": 0, "address": 4096, "total_size": 2048, "stream": 0, "segment_type": "small",
            "blocks": [block, {"address": 5120, "size": 1024, "state": "inactive"}]}])
    };
    let known = device(&with(block(json!([{"addr": 4096, "real_size": 1000, "frames": []}]))), "summary");
    assert_eq!((&known["requested_bytes"], &known["peak"]["requested_bytes"]), (&json!(1000), &json!(1000)));
    assert_eq!((&known["allocated_bytes"], &known["internal_free_bytes"]), (&json!(1024), &json!(24)));
    let without = with(json!({"address": 4096, "size": 1024, "state": "active_allocated"}));
    let unknown = device(&without, "summary");
    assert_eq!((&unknown["requested_bytes"], &unknown["internal_free_bytes"]), (&Value::Null, &Value::Null));
    let (_, text) = run(&without, "summary", &[]);
    assert!(text.contains("Allocated      1.0 KiB in 1 block\n"), "{text}");
    assert!(text.contains("Free           1.0 KiB outside blocks\n"), "{text}");
}

#[test]
fn a_peak_below_held_memory_is_a_contradiction() {
    let block = json!({"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated"});
    let segment = json!({"device": 0, "address": 4096, "total_size": 2048, "stream": 0, "segment_type": "small",
        "blocks": [block]});
    let whole = json!({"segments": [segment], "device_traces": [[event("alloc", json!({"addr": 4096}))]]});
    let (_, text) = run(&whole, "summary", &[]);
    let words = "Contradiction  the segments hold 1000 B requested, but the peak of the trace is 512 B";
    assert!(text.contains(words), "{text}");
}
