//! Snapshots of every version, by every writer, packed or not, are read.

use memtrack_core::snapshot::pytorch::{LoadOptions, write};
use memtrack_core::snapshot::{Format, Loaded, Snapshot};
use memtrack_tests::shared;
use std::path::{Path, PathBuf};

fn open(path: &Path) -> Loaded {
    Snapshot::open(path, LoadOptions::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All pickles in a folder.
fn pickles(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".pickle"));
    files.sort();
    files
}

#[test]
fn every_snapshot_of_the_oracle_is_read() {
    let folders = ["snapshots/real", "snapshots/synth", "snapshots-big", "pickles"];
    for folder in folders.iter().filter_map(|name| Some(shared()?.join("oracle").join(name))) {
        for path in pickles(&folder) {
            let loaded = open(&path);
            assert!(loaded.snapshot.pytorch.is_some());
        }
    }
}

/// The reader keeps lists of frames as stacks, wherever they stand; here it is no list of annotations, and not empty.
#[test]
fn annotations_that_look_like_frames_are_kept() {
    let frames =
        r#"[{"name":"step","filename":"train.py","line":7},{"name":"main","filename":"train.py","line":9}]"#;
    let text = format!(r#"{{"segments":[],"device_traces":[],"external_annotations":{frames}}}"#);
    let read = |bytes: &[u8]| Snapshot::open_stream(bytes, LoadOptions::default()).unwrap().snapshot;
    let from_json = read(text.as_bytes());
    let from_pickle = read(&write(&from_json, Vec::new(), Format::Pickle).unwrap());
    for snapshot in [from_json, from_pickle] {
        let json = write(&snapshot, Vec::new(), Format::Json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["external_annotations"], expected["external_annotations"]);
    }
}

#[test]
fn one_snapshot_by_18_writers_is_one_snapshot() {
    let Some(folder) = shared().map(|at| at.join("oracle/pickles")) else { return };
    let first = open(&folder.join("protocol_4.pickle")).snapshot;
    for path in pickles(&folder) {
        let other = open(&path).snapshot;
        assert_eq!(first.events.ticks, other.events.ticks, "{}", path.display());
        assert_eq!(first.events.stack.len(), other.events.stack.len());
        assert_eq!(first.named.len(), other.named.len(), "{}", path.display());
        assert_eq!(first.frames.len(), other.frames.len(), "{}", path.display());
        assert_eq!(first.blocks.len(), other.blocks.len(), "{}", path.display());
    }
}
