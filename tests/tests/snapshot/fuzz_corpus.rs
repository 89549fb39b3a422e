//! What the fuzzers do, over the files they found interesting and all the fixtures, with a stable compiler.

#[path = "../../../memtrack-core/fuzz/targets.rs"]
mod targets;

use flate2::read::GzDecoder;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::{fixture, oracle, time};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core/fuzz/corpus")
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
}

/// What the fuzzers found: names and contents, as `memtrack-core/fuzz/found.sh` packed them.
fn found() -> Vec<(String, Vec<u8>)> {
    let packed = File::open(corpus().join("found.tar.gz")).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let files =
        archive.entries().unwrap().map(Result::unwrap).filter(|entry| entry.header().entry_type().is_file());
    let unpacked = files.map(|mut file| {
        let mut data = Vec::new();
        file.read_to_end(&mut data).unwrap();
        (file.path().unwrap().display().to_string(), data)
    });
    unpacked.collect()
}

/// The corpus of the fuzzers, and the fixtures, with which they begin too.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = found();
    assert!(files.len() > 600, "{}", files.len());
    let folders =
        ["pickles", "snapshots", "recordings", "traces", "graphs"].map(|folder| corpus().join(folder));
    let fixtures = [oracle("hostile"), oracle("snapshots/synth"), fixture("snapshots/samples")];
    for path in folders.iter().chain(&fixtures).flat_map(|folder| files_in(folder)) {
        // Texts that stand beside the snapshots say nothing to a reader, and large files take long in a debug build.
        let text = path.extension().is_some_and(|suffix| suffix == "folded" || suffix == "txt");
        if !text && path.metadata().unwrap().len() < 70_000 {
            files.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Runs a target over every file; each in little processor time.
fn over_all(target: fn(&[u8])) {
    for (name, data) in files() {
        let begun = time::of_thread();
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("the panic above is about {name}");
        }
        let took = time::of_thread() - begun;
        assert!(took.as_secs() < time::READS_SECONDS, "{name}: {took:?}");
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
fn the_reader_of_operator_traces_stands_the_corpus() {
    over_all(targets::optrace);
}

#[test]
fn the_reader_of_graphs_stands_the_corpus() {
    over_all(targets::cycles);
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
    let recordings = files_in(&corpus().join("recordings"));
    assert!(recordings.len() >= 4);
    for path in recordings {
        let (snapshot, report) = memtrack_core::snapshot::Snapshot::load(&path).unwrap();
        assert!(!report.damaged && report.unknown_chunks == 0, "{}: {report:?}", path.display());
        assert!(!snapshot.events.is_empty(), "{}", path.display());
    }
}
