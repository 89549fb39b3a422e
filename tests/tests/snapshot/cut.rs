//! Files that were cut on their way say at which byte, and what was being read.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::fixture;

/// A snapshot as a file of that suffix.
fn packed(suffix: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let snapshot =
        Snapshot::open(fixture("snapshots/samples/basic-1.pickle"), LoadOptions::default()).unwrap();
    let path = folder.path().join(format!("a.{suffix}"));
    snapshot.snapshot.save_as(&path, &mut Symbolizer::of(&snapshot.snapshot)).unwrap();
    std::fs::read(path).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    Snapshot::open_stream(bytes, LoadOptions::default()).unwrap_err().to_string()
}

#[test]
fn plain_files_name_the_byte_and_how_many_events_came_before() {
    for (suffix, name) in [("pickle", "pickle"), ("json", "JSON")] {
        let whole = packed(suffix);
        // JSON ends with a line feed that nobody misses.
        for cut in (1..whole.len() - 1).step_by(97) {
            let text = refusal(&whole[..cut]);
            let told: usize = text["at byte ".len()..].split(':').next().unwrap().parse().unwrap();
            assert!(told <= cut && cut - told < 300, "{cut}: {text}");
            assert!(text.contains(&format!("the {name} ends too early (events before that: ")), "{text}");
            assert!(!text.contains('\n') && text.ends_with("the file is cut, write it again"), "{text}");
        }
        assert!(!refusal(&whole[..whole.len() - 2]).contains("before that: 0)"), "{suffix}");
    }
}

#[test]
fn packed_files_name_the_byte_of_the_file() {
    for (suffix, name) in
        [("pickle.gz", "gzip"), ("json.gz", "gzip"), ("pickle.zst", "Zstandard"), ("json.zst", "Zstandard")]
    {
        let whole = packed(suffix);
        // Below that, gzip and Zstandard are not known yet; at the end, there are only checksums.
        for cut in (8..whole.len() - 16).step_by(53) {
            let text = refusal(&whole[..cut]);
            let expected = format!(
                "the {name} data ends too early, at byte {cut} of the file: it is cut, copy it again"
            );
            assert_eq!(text, expected, "{suffix}");
        }
    }
}

#[test]
fn packed_files_that_are_damaged_are_not_called_cut() {
    let mut whole = packed("json.gz");
    let middle = whole.len() / 2;
    whole[middle..middle + 8].fill(0xff);
    // As a file goes on behind the window that is read at once.
    whole.extend(std::iter::repeat_n(0, 1 << 20));
    let text = refusal(&whole);
    assert!(!text.contains("is cut"), "{text}");
}

/// A pickle says where it ends, so without its checksum it is whole as far as anyone can tell.
#[test]
fn a_checksum_that_is_cut_off_is_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let whole = packed("pickle.gz");
    let mut damaged = whole.clone();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    for (bytes, told) in [
        (&whole[..], None),
        (&whole[..whole.len() - 3], Some("the gzip data ends too early, at byte ")),
        (&damaged[..], Some("the gzip data is damaged before byte ")),
    ] {
        let file = folder.path().join("a.pickle.gz");
        std::fs::write(&file, bytes).unwrap();
        let mut command = std::process::Command::new(memtrack_tests::memtrack());
        let output = command.arg("summary").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stderr).unwrap();
        match told {
            None => assert_eq!(said, ""),
            Some(told) => {
                assert!(said.contains(&format!("a.pickle.gz: the snapshot was read, but {told}")), "{said}");
                assert!(said.starts_with("memtrack: warning: ") && said.lines().count() == 1, "{said}");
            }
        }
    }
}
