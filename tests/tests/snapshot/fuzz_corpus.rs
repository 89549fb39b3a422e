//! The fuzz targets, run with a stable compiler on the fuzzers' corpus and on all fixtures.

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

/// Returns the names and contents of the files that the fuzzers found, as `memtrack-core/fuzz/found.sh` packed them.
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

/// Returns the fuzzers' corpus, and the fixtures, which are seeds of the fuzzers too.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = found();
    assert!(files.len() > 600, "{}", files.len());
    let folders =
        ["pickles", "snapshots", "recordings", "traces", "graphs"].map(|folder| corpus().join(folder));
    let fixtures = [oracle("hostile"), oracle("snapshots/synth"), fixture("snapshots/samples")];
    for path in folders.iter().chain(&fixtures).flat_map(|folder| files_in(folder)) {
        // The text files next to the snapshots are no input for a reader, and large files take too long in a debug build.
        let text = path.extension().is_some_and(|suffix| suffix == "folded" || suffix == "txt");
        if !text && path.metadata().unwrap().len() < 70_000 {
            files.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Runs a target on every file, with a limit on the processor time for each file.
fn over_all(target: fn(&[u8])) {
    for (name, data) in files() {
        let start = time::of_thread();
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("the panic above is about {name}");
        }
        let elapsed = time::of_thread() - start;
        assert!(elapsed.as_secs() < time::READS_SECONDS, "{name}: {elapsed:?}");
    }
}

#[test]
fn the_pickle_machine_survives_the_corpus() {
    over_all(targets::pickle);
}

#[test]
fn the_snapshot_reader_survives_the_corpus() {
    over_all(targets::snapshot);
}

#[test]
fn the_reader_of_operator_traces_survives_the_corpus() {
    over_all(targets::optrace);
}

#[test]
fn the_reader_of_graphs_survives_the_corpus() {
    over_all(targets::cycles);
}

#[test]
fn data_from_the_corpus_is_the_same_after_writing_and_reading() {
    over_all(targets::round_trip);
}

#[test]
fn every_report_survives_the_corpus() {
    over_all(targets::answers);
}

#[test]
fn the_recording_reader_survives_any_contents_of_chunks() {
    over_all(targets::recording);
}

#[test]
fn recordings_of_the_corpus_are_undamaged() {
    let recordings = files_in(&corpus().join("recordings"));
    assert!(recordings.len() >= 4);
    for path in recordings {
        let (snapshot, report) = memtrack_core::snapshot::Snapshot::load(&path).unwrap();
        assert!(!report.damaged && report.unknown_chunks == 0, "{}: {report:?}", path.display());
        assert!(!snapshot.events.is_empty(), "{}", path.display());
    }
}
