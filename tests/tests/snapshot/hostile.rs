//! No hostile pickle makes the snapshot reader panic, take too long, or accept a file that must be refused.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{LoadError, LoadOptions};
use memtrack_tests::{oracle, time};
use std::fs;
use std::path::Path;

/// Opens a file. The JSON file among the pickles is refused because of its file name alone.
fn open(path: &Path) -> Result<(), LoadError> {
    Snapshot::open(path, LoadOptions::default()).map(|_| ())
}

/// Returns a snapshot with one event, `{"action": "alloc", "odd": …}`, whose last value is built by the pickle instructions
/// `value`; memo slot 1 is the event itself.
fn with_odd_value(fill: &[u8], value: &[u8]) -> Vec<u8> {
    let begin = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]](}q\x01(";
    let keys = b"X\x06\0\0\0actionX\x05\0\0\0allocX\x03\0\0\0odd";
    [begin, &keys[..], value, fill, b"eau."].concat()
}

#[test]
fn an_event_that_contains_itself_is_refused() {
    let read = |pickle: &[u8]| Snapshot::open_stream(pickle, LoadOptions::default()).map(|_| ());
    // The event is filled by SETITEMS. Of the instructions of the text protocols, which are tested afterwards, DICT cannot
    // create a self-reference, but SETITEM can.
    assert!(read(&with_odd_value(b"u", b"}")).is_ok());
    for value in [&b"h\x01"[..], b"]h\x01a", b"(h\x01t", b"X\x01\0\0\0xh\x01\x86"] {
        let error = read(&with_odd_value(b"u", value)).unwrap_err();
        assert!(error.to_string().contains("contains itself"), "{error}");
    }
    let one_by_one = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]](}q\x01\
        X\x06\0\0\0actionX\x05\0\0\0allocsX\x03\0\0\0oddh\x01seau.";
    let error = read(one_by_one).unwrap_err();
    assert!(error.to_string().contains("contains itself"), "{error}");
}

#[test]
fn a_list_of_complete_snapshots_is_refused() {
    let read = |pickle: &[u8]| Snapshot::open_stream(pickle, LoadOptions::default()).map(|_| ());
    let snapshots = b"\x80\x02](}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces]u}(X\x08\0\0\0segments]ue.";
    let error = read(snapshots).unwrap_err().to_string();
    assert!(error.contains("the list[0] is a complete snapshot"), "{error}");
    assert!(read(b"\x80\x02](}(X\x07\0\0\0addressK\x01X\x0a\0\0\0total_sizeK\x02ue.").is_ok());
}

#[test]
fn a_container_that_was_empty_when_used_may_not_be_filled_later() {
    let read = |pickle: &[u8]| Snapshot::open_stream(pickle, LoadOptions::default()).map(|_| ());
    for (empty, more) in [(&b"}q\x02"[..], &b"h\x02K\x01K\x02s0"[..]), (b"]q\x02", b"h\x02K\x01a0")] {
        let pickle = with_odd_value(&[b"u", more].concat(), empty);
        let error = read(&pickle).unwrap_err();
        assert!(error.to_string().contains("changed after it was used"), "{error}");
    }
}

#[test]
fn hostile_files_are_handled_as_their_manifest_specifies() {
    check_manifest(&oracle("hostile"));
}

/// Opens every file in the manifest of a folder, and checks the results.
fn check_manifest(folder: &Path) {
    let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let (mut bad, mut opened) = (Vec::new(), 0);
    for entry in manifest.as_array().unwrap() {
        let (file, expect) = (entry["file"].as_str().unwrap(), entry["expect"].as_str().unwrap());
        opened += 1;
        let start = time::of_thread();
        let result = open(&folder.join(file));
        let elapsed = time::of_thread() - start;
        if elapsed.as_secs() >= time::READS_SECONDS {
            bad.push(format!("{file}: {elapsed:?}"));
        }
        match (&result, expect) {
            (Ok(()), "reject") => bad.push(format!("{file}: accepted ({})", entry["why"])),
            (Err(error), "accept") => bad.push(format!("{file}: {error} ({})", entry["why"])),
            _ => {}
        }
        if let Err(error) = result {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 400, "{file}: {text}");
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(opened > 100, "{opened}");
}
