//! Snapshots of every version and from every writer are read, compressed or not.

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{Encoding, LoadOptions};
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_tests::snapshots::{encoded, pickle};
use memtrack_tests::{oracle, shared};
use std::path::{Path, PathBuf};

fn open(path: &Path) -> Loaded {
    Snapshot::open(path, LoadOptions::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all pickles in a folder.
fn pickles(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".pickle"));
    files.sort();
    files
}

#[test]
fn every_snapshot_of_the_reference_data_is_read() {
    for folder in ["snapshots/synth", "snapshots-big", "pickles"] {
        all_are_read(&oracle(folder));
    }
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn every_real_snapshot_is_read() {
    all_are_read(&shared().join("oracle/snapshots/real"));
}

fn all_are_read(folder: &Path) {
    let files = pickles(folder);
    assert!(!files.is_empty(), "{}", folder.display());
    for path in files {
        let loaded = open(&path);
        assert!(loaded.snapshot.pytorch.is_some());
    }
}

/// The reader turns a list of frames into a stack. If annotations refer to the same list, they are still read as written.
#[test]
fn annotations_that_are_a_list_of_frames_are_kept() {
    let frames = "(lp1\n(dS'name'\nS'step'\nsS'filename'\nS'train.py'\nsS'line'\nI7\nsa";
    let event = "(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI512\nsS'stream'\nI0\nsS'frames'\n";
    let text =
        format!("(dS'segments'\n(lsS'device_traces'\n(l(l{event}{frames}saasS'external_annotations'\ng1\ns.");
    let read = |bytes: &[u8]| Snapshot::open_stream(bytes, LoadOptions::default()).unwrap().snapshot;
    let first = read(text.as_bytes());
    let again = read(&pickle(&first));
    for snapshot in [first, again] {
        let json = encoded(&snapshot, Encoding::Json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let expected = serde_json::json!([{ "name": "step", "filename": "train.py", "line": 7 }]);
        assert_eq!(json["external_annotations"], expected);
        assert_eq!(json["device_traces"][0][0]["frames"], expected);
    }
}

#[test]
fn a_snapshot_from_18_writers_is_always_read_the_same() {
    let folder = oracle("pickles");
    let (first, all) = (open(&folder.join("protocol_4.pickle")).snapshot, pickles(&folder));
    assert_eq!(all.len(), 18);
    for path in all {
        let other = open(&path).snapshot;
        assert_eq!(first.events.ticks, other.events.ticks, "{}", path.display());
        assert_eq!(first.events.stack.len(), other.events.stack.len());
        assert_eq!(first.named.len(), other.named.len(), "{}", path.display());
        assert_eq!(first.frames.len(), other.frames.len(), "{}", path.display());
        assert_eq!(first.blocks.len(), other.blocks.len(), "{}", path.display());
    }
}
