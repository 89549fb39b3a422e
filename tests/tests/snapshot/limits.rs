//! Limits on loading, and the errors about files that cannot be read.

use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{LoadError, LoadOptions};
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_tests::{fixture, oracle};
use serde_json::json;
use std::io::{Read, repeat};

fn read(input: impl Read) -> Result<Loaded, LoadError> {
    Snapshot::open_stream(input, LoadOptions::default())
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let bytes = std::fs::read(oracle("snapshots/synth/sim_2.15.pickle")).unwrap();
    // The limit is checked only every 64 KiB.
    let long = [&bytes[..2], &[b'N', b'0'].repeat(100_000), &bytes[2..]].concat();
    assert!(read(&long[..]).is_ok());
    let options = LoadOptions::new().max_input(100_000);
    let error = Snapshot::open_stream(&long[..], options).unwrap_err().to_string();
    assert!(error.contains("--max-input") && error.contains("100000"), "{error}");
}

#[test]
fn progress_reports_the_bytes_of_the_file() {
    let bytes = [&b"\x80\x04"[..], &[b'N', b'0'].repeat(200_000), b"}\x8c\x08segments]s."].concat();
    let mut seen = Vec::new();
    let mut progress = |bytes| seen.push(bytes);
    let options = LoadOptions::new().progress(&mut progress);
    Snapshot::open_stream(&bytes[..], options).unwrap();
    assert!(seen.len() >= 4 && seen.is_sorted() && *seen.last().unwrap() <= bytes.len() as u64, "{seen:?}");
}

#[test]
fn every_error_about_a_truncated_file_names_the_byte() {
    let bytes = std::fs::read(fixture("snapshots/samples/basic-1.pickle")).unwrap();
    for cut in (0..bytes.len()).step_by(7) {
        let error = read(&bytes[..cut]).unwrap_err().to_string();
        assert!(cut == 0 || error.contains("at byte") && error.contains("cut"), "{cut}: {error}");
    }
    let json = b"{\"segments\": [], \"device_traces\": [[]]}";
    for cut in 1..json.len() {
        let error = read(&json[..cut]).unwrap_err().to_string();
        assert!(error.contains("at byte") && error.contains("cut"), "{cut}: {error}");
    }
    assert!(read(&json[..]).is_ok());
}

#[test]
fn a_bomb_of_containers_is_refused_early() {
    let error = read(&bomb()[..]).unwrap_err().to_string();
    assert!(error.contains("for such a small file"), "{error}");
}

/// Returns 32 Mi empty lists, compressed.
fn bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut repeat(b']').take(32 << 20), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_truncated_compressed_file_is_an_error() {
    use std::io::Write;
    let bytes = std::fs::read(fixture("snapshots/samples/basic-1.pickle")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&bytes).unwrap();
    let compressed = encoder.finish().unwrap();
    assert!(read(&compressed[..]).is_ok());
    for cut in 1..compressed.len() * 3 / 4 {
        assert!(read(&compressed[..cut]).is_err(), "{cut}");
    }
}

/// Wrong values in place of lists, dictionaries and events: every value in every place.
#[test]
fn values_in_the_wrong_place_are_named_with_their_path() {
    let odd =
        [(json!(75), "an integer"), (json!("x"), "a string"), (json!(null), "None"), (json!(1.5), "a float")];
    for (value, name) in odd {
        let files = [
            (json!({"segments": value, "device_traces": []}), "segments"),
            (json!({"segments": [value], "device_traces": []}), "segments[0]"),
            (json!({"segments": [], "device_traces": value}), "device_traces"),
            (json!({"segments": [], "device_traces": [[], value]}), "device_traces[1]"),
            (json!({"segments": [], "device_traces": [[value]]}), "device_traces[0][0]"),
            (json!({"segments": [], "device_traces": [], "host_traces": [value]}), "host_traces[0]"),
        ];
        for (file, path) in files {
            let text = file.to_string();
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("{path} is {name}, not ")), "{text}: {error}");
        }
    }
}
