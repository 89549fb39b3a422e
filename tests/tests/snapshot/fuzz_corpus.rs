//! What the fuzzers do, over the files they found interesting and all the fixtures, with a stable compiler.

#[path = "../../../memtrack-core/fuzz/targets.rs"]
mod targets;

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::fixture;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The corpus of the fuzzers, and the fixtures, with which they begin too.
fn files() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core/fuzz/corpus");
    let folders = ["pickles", "snapshots", "recordings", "found"]
        .map(|folder| corpus.join(folder))
        .into_iter()
        .chain(["hostile", "snapshots/synth", "snapshots/samples"].map(fixture));
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())))
        .map(|entry| entry.unwrap().path())
        // Texts that stand beside the snapshots say nothing to a reader.
        .filter(|path| path.is_file() && path.extension().is_none_or(|s| s != "folded" && s != "txt"))
        .collect();
    files.sort();
    files
}

/// Runs a target over every file; each in little time.
fn over_all(target: fn(&[u8])) {
    let files = files();
    assert!(files.len() > 200, "{}", files.len());
    for path in files {
        let data = std::fs::read(&path).unwrap();
        let start = Instant::now();
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("the panic above is about {}", path.display());
        }
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{}: {took:?}", path.display());
    }
}

#[test]
fn the_pickle_machine_stands_the_corpus() {
    over_all(targets::pickle);
}

#[test]
fn the_snapshot_reader_stands_the_corpus() {
    over_all(targets::snapshot);
}

#[test]
fn what_is_read_from_the_corpus_is_the_same_when_written() {
    over_all(targets::round_trip);
}

#[test]
fn every_report_answers_the_corpus() {
    over_all(targets::answers);
}

#[test]
fn recordings_stand_whatever_is_in_their_chunks() {
    over_all(targets::recording);
}

#[test]
fn the_recordings_of_the_corpus_are_whole() {
    let recordings: Vec<_> =
        files().into_iter().filter(|path| path.to_string_lossy().contains("/recordings/")).collect();
    assert!(recordings.len() >= 4);
    for path in recordings {
        let (snapshot, report) = memtrack_core::snapshot::Snapshot::load(&path).unwrap();
        assert!(!report.damaged && report.unknown_chunks == 0, "{}: {report:?}", path.display());
        assert!(!snapshot.events.is_empty(), "{}", path.display());
    }
}
