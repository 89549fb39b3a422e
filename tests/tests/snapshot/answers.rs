//! memtrack's reports about a snapshot, with numbers checked by hand: see `memtrack_tests::pytorch::SMALL`.

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::pytorch::SMALL;
use memtrack_tests::snapshots::small;
use memtrack_tests::verbs::piped;
use memtrack_tests::{memtrack, oracle};
use serde_json::{Value, json};
use std::process::{Command, Output};

/// Runs a verb on the snapshot, which is piped to standard input.
fn run(verb: &str, arguments: &[&str]) -> Output {
    piped(&[&[verb, "-"], arguments].concat(), SMALL.as_bytes())
}

fn text(verb: &str, arguments: &[&str]) -> String {
    let output = run(verb, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn device(verb: &str, arguments: &[&str]) -> Value {
    let value: Value = serde_json::from_str(&text(verb, &[arguments, &["--json"]].concat())).unwrap();
    value["devices"][0].clone()
}

/// Returns the name and the bytes of every row.
fn rows(device: &Value) -> Vec<(String, u64)> {
    let rows = device["rows"].as_array().unwrap().iter();
    rows.map(|row| (memtrack_tests::verbs::name(row), row["requested_bytes"].as_u64().unwrap())).collect()
}

#[test]
fn a_summary_contains_held_memory_and_events_that_the_ring_lost() {
    let summary = device("summary", &[]);
    for (name, expected) in [
        ("segments", 2),
        ("reserved_bytes", 3 << 20),
        ("allocated_bytes", 512),
        ("requested_bytes", 500),
        ("active_bytes", 512 + 1_048_576),
        ("pending_free_bytes", 1_048_576),
        ("pending_free_blocks", 1),
        ("inactive_bytes", 1024 + 1_047_040 + 1_048_576),
        ("inactive_split_bytes", 1024 + 1_047_040),
        ("largest_inactive_bytes", 1_048_576),
        ("internal_free_bytes", 12),
        ("releasable_bytes", 1_048_576),
        ("reserved_peak_bytes", 3 << 20),
        ("events", 9),
        ("older_blocks", 2),
        ("older_bytes", 1_049_000),
        ("frees_without_allocation", 2),
        ("live_at_end_bytes", 500),
        ("live_at_end_blocks", 1),
        ("out_of_memory_events", 1),
    ] {
        assert_eq!(summary[name], json!(expected), "{name}");
    }
    assert_eq!(summary["fragmentation"], json!(1_048_064.0 / 3_145_728.0));
    let oom = &summary["out_of_memory"][0];
    assert_eq!(
        (&oom["event"], &oom["live_bytes"], &oom["live_blocks"]),
        (&5.into(), &2_048_500.into(), &3.into())
    );
    assert_eq!(oom["device_free_bytes"], 7);
    assert_eq!(summary["look_first"].as_array().unwrap().len(), 3);
    let text = text("summary", &[]);
    assert!(text.contains("Fragmentation  33.3 %, much"), "{text}");
    assert!(
        text.contains("Peak           2.0 MiB requested, after event 4, 0.500 s after the first"),
        "{text}"
    );
}

#[test]
fn a_summary_compares_stuck_pieces_and_reports_contradictions() {
    let small = device("summary", &[]);
    assert_eq!(small["contradictions"], json!([]));
    assert_eq!(small["largest_inactive_split_bytes"], 1_047_040);
    assert!(text("summary", &[]).contains("memtrack top FILE --at oom"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let summary = |segments: Value, events: Value| {
        std::fs::write(&path, json!({"segments": segments, "device_traces": [events]}).to_string()).unwrap();
        String::from_utf8(Command::new(memtrack()).arg("summary").arg(&path).output().unwrap().stdout)
            .unwrap()
    };
    // The largest free block fills a whole segment, which can be released, so its memory does not count as stuck.
    let segment = |address: u64, blocks: &[(u64, &str)]| {
        let mut end = address;
        let block = |&(size, state): &(u64, &str)| {
            end += size;
            json!({"address": end - size, "size": size, "requested_size": size, "state": state})
        };
        let blocks: Vec<_> = blocks.iter().map(block).collect();
        json!({"device": 0, "address": address, "total_size": end - address, "stream": 0, "blocks": blocks})
    };
    let (mib, active, free) = (1u64 << 20, "active_allocated", "inactive");
    let split = segment(1 << 30, &[(mib, active), (8 * mib, free), (mib, active), (6 * mib, free)]);
    let text = summary(json!([split, segment(2 << 30, &[(20 * mib, free)])]), json!([]));
    let stuck = "14.0 MiB are free but stuck in split segments, in 2 pieces; the largest of them has 8.0 MiB";
    assert!(text.contains(stuck), "{text}");

    // The block of 1 MiB is in no segment: the only segment has 512 bytes, all of them free.
    let event = json!({"action": "alloc", "addr": 9_000_000, "size": 1 << 20, "stream": 0, "time_us": 1, "frames": []});
    let text = summary(json!([segment(4096, &[(512, free)])]), json!([event]));
    for words in [
        "Contradiction  the trace has 1.0 MiB live at its peak, but its segments never came to more than 512 B",
        "Contradiction  the trace leaves 1.0 MiB in 1 block live that no segment holds",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_peak_counts_memory_from_before_the_trace() {
    let peak = device("peak", &[]);
    assert_eq!(peak["highest"]["event"], 4);
    assert_eq!(peak["highest"]["requested_bytes"], 2_048_500);
    assert_eq!(peak["highest"]["reserved_bytes"], 3 << 20);
    let expected = [("(allocated before the first event)", 1_048_000), ("work", 1_000_000), ("keep", 500)];
    assert_eq!(rows(&peak), expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    assert_eq!(peak["rows"][1]["stack"][1]["function"], "keep");
    // The segments reach their maximum one event earlier, before `work` is live.
    let reserved = device("peak", &["--of", "reserved"]);
    assert_eq!(
        (&reserved["highest"]["event"], &reserved["highest"]["requested_bytes"]),
        (&3.into(), &1_048_500.into())
    );
    let text = text("peak", &["-n", "1"]);
    assert!(text.contains("… and 2 more groups, 977.1 KiB"), "{text}");
}

#[test]
fn the_peak_names_old_blocks_from_their_history() {
    let old = oracle("snapshots/synth/legacy_list_history.pickle");
    let output = Command::new(memtrack()).arg("peak").arg(old).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("outer") && text.contains("z.py:9"), "{text}");
}

#[test]
fn top_ranks_live_memory_at_any_moment() {
    let at = |moment: &str, by: &str| rows(&device("top", &["--at", moment, "--by", by]));
    let expected =
        |rows: &[(&str, u64)]| rows.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect::<Vec<_>>();
    let old = "(allocated before the first event)";
    assert_eq!(
        at("oom", "file"),
        expected(&[(old, 1_048_000), ("/app/ops.py", 1_000_000), ("/app/model.py", 500)])
    );
    assert_eq!(at("end", "frame"), expected(&[("keep /app/model.py:7", 500)]));
    assert_eq!(at("0", "stack"), expected(&[(old, 1_048_000)]));
    assert_eq!(at("peak", "stream"), expected(&[("default stream", 1_048_500), ("stream 0x3", 1_000_000)]));
    assert_eq!(at("peak", "pool"), expected(&[("default pool", 1_048_500), ("pool (0, 1)", 1_000_000)]));
    let sizes = rows(&device("top", &["--by", "size"]));
    // The last row's block was allocated before the trace, and is listed because it was live at the peak.
    assert_eq!(
        sizes,
        expected(&[
            ("976.6 KiB (1,000,000 bytes)", 1_000_000),
            ("500 B (500 bytes)", 500),
            ("1023.4 KiB (1,048,000 bytes)", 0)
        ])
    );
    assert_eq!(at("peak", "category"), expected(&[("(no category)", 2_048_500)]));
    for moment in ["9", "yesterday", "-1"] {
        assert_eq!(run("top", &[&format!("--at={moment}")]).status.code(), Some(2), "{moment}");
    }
}

#[test]
fn a_check_of_a_recording_without_its_end_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.memtrack");
    let whole = small().save_to(Vec::new()).unwrap();
    let code = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let output = Command::new(memtrack()).arg("check").arg(&path).args(["--max-peak", "1GiB"]).output();
        output.unwrap().status.code()
    };
    assert_eq!((code(&whole), code(&whole[..whole.len() / 2])), (Some(0), Some(3)));
}

#[test]
fn a_check_without_the_needed_data_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let check = |segments: Value, limit: &str| {
        std::fs::write(&path, json!({"segments": segments, "device_traces": [[]]}).to_string()).unwrap();
        let output = Command::new(memtrack()).arg("check").arg(&path).args([limit, "0"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let block = |state: &str| {
        json!([{"device": 0, "address": 4096, "total_size": 512, "stream": 0,
            "blocks": [{"address": 4096, "size": 512, "requested_size": 500, "state": state}]}])
    };
    for limit in ["--max-peak", "--max-leak", "--max-fragmentation"] {
        let (code, why) = check(json!([]), limit);
        assert_eq!(code, Some(3), "{limit}");
        assert!(why.contains("nothing to check") && why.contains("recording was not on"), "{why}");
        assert_eq!(why.lines().count(), 2, "{why}");
    }
    // Without a history, held memory can be checked, but leaks cannot.
    let (code, why) = check(block("inactive"), "--max-leak");
    assert!(code == Some(3) && why.contains("leaks cannot be detected"), "{why}");
    let (code, why) = check(block("inactive"), "--max-fragmentation");
    assert!(code == Some(0) && why.contains("recording was not on"), "{why}");
    let (code, why) = check(block("active_allocated"), "--max-peak");
    assert!(code == Some(1) && why.contains("the peak is what is live at the end"), "{why}");
    let few = String::from_utf8(run("check", &["--max-peak", "1GiB"]).stderr).unwrap();
    assert_eq!(few, "memtrack: warning: there is little to judge by: 9 events\n");
}

#[test]
fn a_check_exits_with_1_beyond_its_limits_and_prints_why() {
    let code = |arguments: &[&str]| run("check", arguments).status.code();
    assert_eq!(
        code(&["--max-peak", "2048500", "--max-leak", "500B", "--max-fragmentation", "0.34"]),
        Some(0)
    );
    for exceeded in [["--max-peak", "2048499"], ["--max-leak", "0.4KiB"], ["--max-fragmentation", "33%"]] {
        let output = run("check", &exceeded);
        assert_eq!(output.status.code(), Some(1), "{exceeded:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() == 1 && text.starts_with("exceeded: "), "{text}");
    }
    let all = run("check", &["--max-peak", "1", "--max-leak", "0", "--max-fragmentation", "0", "--json"]);
    let value: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!((all.status.code(), value["exceeded"].as_array().unwrap().len()), (Some(1), 3));
    for nonsense in [
        ["--max-peak", "lots"],
        ["--max-leak", "-1"],
        ["--max-peak", ""],
        ["--max-leak", "1e3GiB"],
        ["--max-fragmentation", "120%"],
        ["--max-fragmentation", "-0.1"],
        ["--max-fragmentation", "NaN%"],
    ] {
        let output = run("check", &nonsense);
        assert_eq!(output.status.code(), Some(2), "{nonsense:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("invalid value '{}' for '{}", nonsense[1], nonsense[0])), "{text}");
        assert!(text.contains(": expected "), "{text}");
    }
    assert_eq!(code(&[]), Some(2), "a check without limits");
}
