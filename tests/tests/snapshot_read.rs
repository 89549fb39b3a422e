//! Snapshots of every version, by every writer, packed or not, are read.

use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Loaded, Snapshot};
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
