//! Errors about truncated files name the byte position, and the data that was being read.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::fixture;

/// Saves a snapshot in the format of this suffix, and returns the bytes of the file.
fn saved(suffix: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let snapshot =
        Snapshot::open(fixture("snapshots/samples/basic-1.pickle"), LoadOptions::default()).unwrap();
    let path = folder.path().join(format!("a.{suffix}"));
    snapshot.snapshot.save_as(&path, &mut Symbolizer::of(&snapshot.snapshot)).unwrap();
    std::fs::read(path).unwrap()
}

fn error_of(bytes: &[u8]) -> String {
    Snapshot::open_stream(bytes, LoadOptions::default()).unwrap_err().to_string()
}

#[test]
fn errors_on_plain_files_name_the_byte_and_the_number_of_events() {
    for (suffix, name) in [("pickle", "pickle"), ("json", "JSON")] {
        let whole = saved(suffix);
        // The line feed at the end of JSON is optional.
        for cut in (1..whole.len() - 1).step_by(97) {
            let text = error_of(&whole[..cut]);
            let byte: usize = text["at byte ".len()..].split(':').next().unwrap().parse().unwrap();
            assert!(byte <= cut && cut - byte < 300, "{cut}: {text}");
            assert!(text.contains(&format!("the {name} ends too early (events before that: ")), "{text}");
            assert!(!text.contains('\n') && text.ends_with("the file is cut, write it again"), "{text}");
        }
        assert!(!error_of(&whole[..whole.len() - 2]).contains("before that: 0)"), "{suffix}");
    }
}

#[test]
fn errors_on_compressed_files_name_the_byte_of_the_file() {
    for (suffix, name) in
        [("pickle.gz", "gzip"), ("json.gz", "gzip"), ("pickle.zst", "Zstandard"), ("json.zst", "Zstandard")]
    {
        let whole = saved(suffix);
        // Shorter files are not recognized as gzip or Zstandard; the last bytes are only checksums.
        for cut in (8..whole.len() - 16).step_by(53) {
            let text = error_of(&whole[..cut]);
            let expected = format!(
                "the {name} data ends too early, at byte {cut} of the file: it is cut, copy it again"
            );
            assert_eq!(text, expected, "{suffix}");
        }
    }
}

#[test]
fn damaged_compressed_files_are_not_reported_as_cut() {
    let mut whole = saved("json.gz");
    let middle = whole.len() / 2;
    whole[middle..middle + 8].fill(0xff);
    // The file continues beyond the part that is read at once.
    whole.extend(std::iter::repeat_n(0, 1 << 20));
    let text = error_of(&whole);
    assert!(!text.contains("is cut"), "{text}");
}

/// A pickle marks its end, so it is complete even without the checksum of the compressed data.
#[test]
fn a_missing_or_wrong_checksum_gives_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let whole = saved("pickle.gz");
    let mut damaged = whole.clone();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    for (bytes, warning) in [
        (&whole[..], None),
        (&whole[..whole.len() - 3], Some("the gzip data ends too early, at byte ")),
        (&damaged[..], Some("the gzip data is damaged before byte ")),
    ] {
        let file = folder.path().join("a.pickle.gz");
        std::fs::write(&file, bytes).unwrap();
        let mut command = std::process::Command::new(memtrack_tests::memtrack());
        let output = command.arg("summary").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let stderr = String::from_utf8(output.stderr).unwrap();
        match warning {
            None => assert_eq!(stderr, ""),
            Some(warning) => {
                assert!(
                    stderr.contains(&format!("a.pickle.gz: the snapshot was read, but {warning}")),
                    "{stderr}"
                );
                assert!(stderr.starts_with("memtrack: warning: ") && stderr.lines().count() == 1, "{stderr}");
            }
        }
    }
}
