//! A snapshot that a Rust program dumped, as PyTorch's tools read it: `fixtures/snapshots/recorded` contains a dump, and the
//! texts that PyTorch's `_memory_viz.py` printed about the dump. The tests also run the program again.

use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::pytorch::{Key, LoadOptions};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_core::viz::{Stats, memory_folded, segments_folded, trace};
use memtrack_tests::child::run_well;
use memtrack_tests::fixture;
use memtrack_tests::opcodes::assert_known_to_the_viewer;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_snapshot_run");
const TEXTS: [&str; 4] = ["stats.txt", "trace.txt", "segments.folded", "memory.folded"];

fn recorded() -> PathBuf {
    fixture("snapshots/recorded/run.pickle")
}

/// Returns the stored text that PyTorch printed about the dump.
fn stored(name: &str) -> String {
    fs::read_to_string(fixture("snapshots/recorded/run").join(name)).unwrap()
}

/// Returns memtrack's text about a snapshot.
fn text(snapshot: &Snapshot, name: &str) -> String {
    let snapshot = &PytorchSnapshot::try_from(snapshot.clone()).unwrap();
    let mut out = Vec::new();
    match name {
        "stats.txt" => Stats::of(snapshot).write_text(&mut out).unwrap(),
        "trace.txt" => drop(trace(snapshot, &mut out).unwrap()),
        "segments.folded" => drop(segments_folded(snapshot, &mut out).unwrap()),
        _ => drop(memory_folded(snapshot, &mut out).unwrap()),
    }
    String::from_utf8(out).unwrap()
}

fn open(path: &Path) -> Snapshot {
    let loaded = Snapshot::open(path, LoadOptions::default());
    loaded.unwrap_or_else(|error| panic!("{}: {error}", path.display())).snapshot
}

/// Runs the program, which dumps a snapshot to a file with this name in `folder`.
fn dumped(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    run_well(PROGRAM, &[path.to_str().unwrap()], folder);
    path
}

#[test]
fn memtracks_texts_about_a_dump_equal_pytorchs() {
    let snapshot = open(&recorded());
    for name in TEXTS {
        assert_eq!(text(&snapshot, name), stored(name), "{name}");
    }
}

#[test]
fn a_dump_written_again_is_identical_and_has_the_same_texts() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = open(&recorded());
    for name in ["a.pickle", "a.pickle.gz", "a.json", "a.memtrack"] {
        let path = folder.path().join(name);
        snapshot.save_as(&path, &mut Symbolizer::of(&snapshot)).unwrap();
        if name == "a.pickle" {
            assert!(fs::read(&path).unwrap() == fs::read(recorded()).unwrap());
        }
        let again = open(&path);
        for text_name in TEXTS {
            assert_eq!(text(&again, text_name), stored(text_name), "{name}: {text_name}");
        }
    }
}

/// Returns folded lines with the program's functions, but without source positions, which may change.
fn without_places(folded: &str) -> Vec<String> {
    let line = |line: &str| {
        let (stack, bytes) = line.rsplit_once(' ').unwrap();
        let frames =
            stack.split(';').filter_map(|frame| match frame.splitn(3, ':').collect::<Vec<_>>()[..] {
                [_, _, function] if function.starts_with("snapshot_run::") => Some(function),
                [_, _, _] => None,
                _ => Some(frame),
            });
        format!("{} {bytes}", frames.collect::<Vec<_>>().join(";"))
    };
    folded.lines().map(line).collect()
}

#[test]
fn a_new_run_of_the_program_dumps_the_same_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["fresh.pickle", "fresh.json.zst", "fresh.memtrack"] {
        let fresh = open(&dumped(folder.path(), name));
        let fresh = fresh.as_pytorch(&mut Symbolizer::of(&fresh));
        assert_eq!(text(&fresh, "stats.txt"), stored("stats.txt"), "{name}");
        // An action that PyTorch does not know is printed as a whole dictionary, whose time and source lines differ.
        let lines = |text: &str| -> Vec<String> {
            text.lines().map(|line| if line.starts_with('{') { "{…}" } else { line }.to_owned()).collect()
        };
        assert_eq!(lines(&text(&fresh, "trace.txt")), lines(&stored("trace.txt")), "{name}");
        for text_name in ["segments.folded", "memory.folded"] {
            let (fresh, stored) =
                (without_places(&text(&fresh, text_name)), without_places(&stored(text_name)));
            assert!(fresh.iter().any(|line| line.contains(";snapshot_run::model;snapshot_run::forward ")));
            assert_eq!(fresh, stored, "{name}: {text_name}");
        }
        let events = |snapshot: &Snapshot| -> Vec<String> {
            let keys = [
                Key::Action,
                Key::Addr,
                Key::DeviceFree,
                Key::Size,
                Key::Stream,
                Key::UserMetadata,
                Key::PoolId,
            ];
            let value = |row, key| snapshot.event_value(row, key);
            let text = |row| {
                let scope = snapshot.pytorch.as_deref().unwrap().events.text(row, Key::UserMetadata);
                let scope = snapshot.strings.get(scope);
                let others = keys.iter().filter(|&&key| key != Key::UserMetadata);
                format!("{:?} {scope}", others.map(|&key| value(row, key)).collect::<Vec<_>>())
            };
            (0..snapshot.events.len()).map(text).collect()
        };
        assert_eq!(events(&fresh), events(&open(&recorded())), "{name}");
    }
}

#[test]
fn a_dump_ranks_operators_modules_and_phases_like_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let rankings = |name: &str| -> Vec<Value> {
        let snapshot = open(&dumped(folder.path(), name));
        let mut symbols = Symbolizer::of(&snapshot);
        let places = [By::Operator, By::Module, By::Phase];
        let all = places.into_iter().flat_map(|by| [0, 1].map(|device| (by, DeviceId(device))));
        all.map(|(by, device)| {
            let mut ranking = top_with(&snapshot, &mut symbols, by, device, &TopOptions::default()).to_json();
            // Stacks are not compared, because they contain source lines. Totals are not compared, because a dump has totals of
            // only the events that are in it.
            ranking["rows"].as_array_mut().unwrap().iter_mut().for_each(|row| row["stacks"] = Value::Null);
            let peak = &ranking["peak"];
            json!([
                ranking["rows"],
                ranking["attribution"],
                peak["live_bytes"],
                peak["operator"],
                peak["phase"]
            ])
        })
        .collect()
    };
    let recording = rankings("a.memtrack");
    assert!(recording[0].to_string().contains("block.3.forward.forward"), "{}", recording[0]);
    assert_eq!(rankings("a.pickle"), recording);
    assert_eq!(rankings("a.json.gz"), recording);
}

#[test]
fn the_viewer_supports_every_instruction_of_a_dump() {
    let folder = tempfile::tempdir().unwrap();
    for path in [recorded(), dumped(folder.path(), "fresh.pickle")] {
        assert_known_to_the_viewer(&path.display().to_string(), &fs::read(path).unwrap());
    }
}

/// The script with which CPython checks a dump; its unpickler accepts no classes.
const CHECK: &str = r#"
import pickle, sys, time
class Safe(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"refused: {module}.{name}")
s = Safe(open(sys.argv[1], "rb")).load()
assert list(s) == ["segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces"], list(s)
assert [len(t) for t in s["device_traces"]] == [int(n) for n in sys.argv[2].split(",")], [len(t) for t in s["device_traces"]]
for g in s["segments"]:
    blocks = g["blocks"]
    assert sum(b["size"] for b in blocks) == g["total_size"]
    assert all(a["address"] + a["size"] == b["address"] for a, b in zip(blocks, blocks[1:])) and blocks[0]["address"] == g["address"]
    active = [b for b in blocks if b["state"].startswith("active")]
    assert g["allocated_size"] == sum(b["size"] for b in active if b["state"] == "active_allocated")
    assert g["active_size"] == sum(b["size"] for b in active) and g["requested_size"] == sum(b["requested_size"] for b in active)
    assert type(g["segment_pool_id"]) is tuple and g["segment_type"] in ("small", "large")
now = time.time() * 1e6
for t in s["device_traces"]:
    for a, b in zip(t, t[1:]):
        assert a["time_us"] <= b["time_us"]
    for e in t:
        assert type(e["action"]) is str and type(e["size"]) is int and e["compile_context"] == "N/A" and e["pool_id"] == (0, 0)
        assert ("device_free" in e) == (e["action"] == "oom") != ("addr" in e)
        assert now - 600e6 < e["time_us"] <= now
        assert all(list(f) == ["name", "filename", "line"] and type(f["line"]) is int for f in e["frames"])
        assert any(f["name"] == "snapshot_run::work" for f in e["frames"])
oom, = [e for e in s["device_traces"][0] if e["action"] == "oom"]
assert (oom["size"], oom["device_free"], oom["user_metadata"]) == (3 << 30, 512 << 20, "too_much"), oom
assert any("Größe ⊕ \"copy\" it's" == e["user_metadata"] for e in s["device_traces"][0])
assert any(b["state"] == "active_pending_free" for g in s["segments"] for b in g["blocks"])
"#;

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn cpython_loads_a_dump_without_any_class() {
    let folder = tempfile::tempdir().unwrap();
    let path = dumped(folder.path(), "fresh.pickle");
    let lengths: Vec<String> =
        open(&recorded()).pytorch.unwrap().traces.iter().map(|rows| rows.len().to_string()).collect();
    let output =
        Command::new("python3").args(["-c", CHECK]).arg(path).arg(lengths.join(",")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
