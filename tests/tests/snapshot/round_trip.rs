//! A snapshot that is read, written and read again is the same in every format, including unknown keys and oddities.

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{Encoding, LoadOptions};
use memtrack_core::snapshot::{Format, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{encoded, pickle};
use memtrack_tests::{fixture, oracle, shared};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn read(bytes: &[u8]) -> Snapshot {
    Snapshot::open_stream(bytes, LoadOptions::default()).unwrap_or_else(|error| panic!("{error}")).snapshot
}

fn pickles(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".pickle"));
    files.sort();
    files
}

fn files(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut files: Vec<_> = folders.iter().flat_map(|folder| pickles(folder)).collect();
    // Larger files cover nothing more, and take too long in a debug build.
    files.retain(|path| path.metadata().is_ok_and(|file| file.len() < 250_000));
    assert!(files.len() > 5, "{}", files.len());
    files
}

fn fixtures() -> Vec<PathBuf> {
    files(&[oracle("snapshots/synth"), oracle("pickles"), fixture("snapshots/samples")])
}

fn real_snapshots() -> Vec<PathBuf> {
    files(&[shared().join("oracle/snapshots/real")])
}

#[test]
fn a_pickle_written_again_is_the_same_snapshot() {
    check_pickles(fixtures());
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn real_snapshots_written_again_are_the_same_snapshots() {
    check_pickles(real_snapshots());
}

fn check_pickles(files: Vec<PathBuf>) {
    for path in files {
        let first = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        let written = pickle(&first);
        let second = read(&written);
        // A written file has none of the original writer's oddities, so another round gives equal tables, too.
        let third = read(&pickle(&second));
        assert!(second == third, "{}", path.display());
        assert_eq!(pickle(&third), written, "{}", path.display());
        assert_eq!(first.events, second.events, "{}", path.display());
        assert_eq!(first.blocks.len(), second.blocks.len(), "{}", path.display());
    }
}

#[test]
fn a_recording_contains_a_whole_snapshot_from_pytorch() {
    check_recordings(fixtures());
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn recordings_contain_whole_real_snapshots() {
    check_recordings(real_snapshots());
}

fn check_recordings(files: Vec<PathBuf>) {
    for path in files.into_iter().filter(|path| path.metadata().unwrap().len() < 200_000) {
        let first = read(&pickle(&Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot));
        let recording = first.save_to(Vec::new()).unwrap();
        let loaded = Snapshot::open_stream(&recording[..], LoadOptions::default()).unwrap();
        assert_eq!(loaded.format, Format::Recording);
        assert!(loaded.report.unwrap().complete);
        assert!(loaded.snapshot == first, "{}", path.display());
    }
}

#[test]
fn json_is_the_same_or_the_error_explains_why_not() {
    check_json(fixtures());
}

fn check_json(files: Vec<PathBuf>) {
    // JSON repeats shared stacks, so the compressed files would take too long in a debug build.
    for path in files.into_iter().filter(|path| path.extension().is_some_and(|suffix| suffix == "pickle")) {
        let first = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        match encoded(&first, Encoding::Json) {
            Ok(text) => {
                let second = read(&text);
                assert_eq!(first.events, second.events, "{}", path.display());
                assert_eq!(encoded(&second, Encoding::Json).unwrap(), text, "{}", path.display());
            }
            Err(error) => {
                assert!(path.ends_with("trace_unknown_action.pickle"), "{}: {error}", path.display());
                assert!(error.to_string().contains("write a pickle"), "{error}");
            }
        }
    }
}

#[test]
fn compressed_files_contain_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let first = read(&std::fs::read(oracle("snapshots/synth/sim_2.15.pickle")).unwrap());
    let plain = pickle(&first);
    for name in ["a.pickle.gz", "a.pickle.zst", "a.memtrack.gz", "a.memtrack.zst", "a.pickle", "a.memtrack"] {
        let path = folder.path().join(name);
        first.save_as(&path, &mut Symbolizer::of(&first)).unwrap();
        let loaded = Snapshot::open(&path, LoadOptions::default()).unwrap();
        assert_eq!(pickle(&loaded.snapshot), plain, "{name}");
    }
    let path = folder.path().join("a.json.zst");
    first.save_as(&path, &mut Symbolizer::of(&first)).unwrap();
    let loaded = Snapshot::open(&path, LoadOptions::default()).unwrap();
    assert_eq!(loaded.format, Format::Json);
    assert_eq!(pickle(&loaded.snapshot), plain);
    let error = first.save_as(folder.path().join("a.txt"), &mut Symbolizer::of(&first)).unwrap_err();
    assert!(error.to_string().contains(".pickle"), "{error}");
}

/// Generates arbitrary JSON values, with known and unknown keys.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Multiples of 1/4: serde_json reads other fractions with an error in the last digit.
        (-1_000_000..1_000_000i32).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        "[a-z\\\\\"\u{1}é😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "action",
        "addr",
        "device_free",
        "size",
        "stream",
        "time_us",
        "frames",
        "pool_id",
        "name",
        "filename",
        "line",
        "blocks",
        "state",
        "device",
        "is_expandable",
        "user_metadata",
        "forward_frames",
        "zz",
        "",
    ])
    .prop_map(str::to_owned)
}

/// Generates `base` with some entries added or replaced.
fn varied(base: Value) -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), anything()), 0..4).prop_map(move |entries| {
        let mut object = base.clone();
        // The values of these keys are not replaced, because the reader would refuse the file.
        let is_free = |(key, _): &(String, Value)| !["action", "blocks", "frames"].contains(&key.as_str());
        for (key, value) in entries.into_iter().filter(is_free) {
            object[key] = value;
        }
        object
    })
}

fn snapshot() -> impl Strategy<Value = Value> {
    let frames =
        json!([{"name": "f", "filename": "a.py", "line": 3}, {"name": "g", "filename": "b.py", "line": 4}]);
    let event = varied(json!({"action": "alloc", "addr": 4096, "size": 512, "frames": frames}));
    let block = json!({"size": 512, "requested_size": 500, "state": "active_allocated", "frames": []});
    let segment = varied(json!({"device": 0, "address": 4096, "total_size": 512, "blocks": [block]}));
    let (events, segments) = (prop::collection::vec(event, 0..6), prop::collection::vec(segment, 0..3));
    (events, segments, anything()).prop_map(
        |(events, segments, extra)| json!({"segments": segments, "device_traces": [events], "zz": extra}),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn every_written_snapshot_is_read_back(value in snapshot()) {
        let first = read(value.to_string().as_bytes());
        let second = read(&pickle(&first));
        prop_assert_eq!(pickle(&read(&pickle(&second))), pickle(&second));
        // JSON has no tuples, so the JSON texts are compared.
        let text = |snapshot: &Snapshot| encoded(snapshot, Encoding::Json).unwrap();
        prop_assert_eq!(text(&first), text(&second));
        let back: Value = serde_json::from_slice(&text(&first)).unwrap();
        prop_assert_eq!(back, value);
    }
}
