//! Truncated and modified recordings, and files that are not recordings.

use memtrack_core::event::Action;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::recording::{FORMAT_VERSION, RecordingError, load_from};
use memtrack_core::snapshot::{EventTable, Snapshot};
use memtrack_tests::snapshots::{empty, event, small};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a snapshot, and the bytes of its recording, which has several chunks of events.
fn several_chunks() -> (Snapshot, Vec<u8>) {
    let mut snapshot = small();
    for i in 0..9_000 {
        snapshot.events.push(&event(2_000 + i, Action::Alloc, 0x10_0000 + i * 64, 64));
    }
    let bytes = snapshot.save_to(Vec::new()).unwrap();
    (snapshot, bytes)
}

fn is_prefix(short: &EventTable, long: &EventTable) -> bool {
    short.len() <= long.len() && short.iter().zip(long.iter()).all(|(a, b)| a == b)
}

#[test]
fn a_file_cut_at_any_byte_is_readable_to_its_last_complete_chunk() {
    let whole = small();
    let bytes = whole.save_to(Vec::new()).unwrap();
    let mut seen = 0;
    for cut in 0..bytes.len() {
        match load_from(&bytes[..cut]) {
            Err(RecordingError::Empty) => assert_eq!(cut, 0),
            Err(RecordingError::Header) => assert!(cut < 16),
            Err(other) => panic!("cut at {cut}: {other}"),
            Ok((loaded, report)) => {
                assert!(cut >= 16 && !report.complete && report.warning().is_some());
                assert_eq!(report.file_bytes, cut as u64);
                assert!(report.lost_bytes < bytes.len() as u64 && !report.damaged);
                assert!(is_prefix(&loaded.events, &whole.events));
                // A longer prefix of the file never has fewer events.
                assert!(loaded.events.len() >= seen);
                seen = loaded.events.len();
            }
        }
    }
    assert_eq!(seen, whole.events.len());
}

#[test]
fn a_cut_in_the_second_chunk_of_events_keeps_the_first() {
    let (whole, bytes) = several_chunks();
    let chunks: Vec<_> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == b"EVNT").map(|(at, _)| at).collect();
    assert_eq!(chunks.len(), 3);
    for cut in [chunks[1], chunks[1] + 10, chunks[2] - 1] {
        let (loaded, report) = load_from(&bytes[..cut]).unwrap();
        assert_eq!(loaded.events.len(), 4096);
        assert_eq!(report.lost_bytes, (cut - chunks[1]) as u64);
        assert!(is_prefix(&loaded.events, &whole.events));
    }
}

#[test]
fn a_changed_byte_loses_its_chunk_and_all_later_ones_and_is_reported() {
    let (whole, bytes) = several_chunks();
    let second = bytes.windows(4).enumerate().filter(|(_, w)| *w == b"EVNT").nth(1).unwrap().0;
    for place in [4, 8, 12, 16, 20, 60] {
        let mut bytes = bytes.clone();
        bytes[second + place] ^= 0x10;
        let (loaded, report) = load_from(&bytes[..]).unwrap();
        assert_eq!(loaded.events.len(), 4096);
        assert!(is_prefix(&loaded.events, &whole.events));
        assert_eq!(report.lost_bytes, (bytes.len() - second) as u64, "byte {place} of the chunk");
        assert!(report.warning().unwrap().contains("lost"));
    }
}

#[test]
fn every_flipped_bit_of_a_small_file_is_detected() {
    let bytes = small().save_to(Vec::new()).unwrap();
    for place in 16..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << bit;
            let (_, report) = load_from(&bytes[..]).unwrap();
            assert!(!report.complete && report.lost_bytes > 0, "bit {bit} of byte {place}");
        }
    }
}

#[test]
fn chunks_of_an_unknown_kind_are_skipped() {
    let whole = small();
    let mut bytes = whole.save_to(Vec::new()).unwrap();
    let mut chunk = b"NEWS\0\0\0\0\x03\0\0\0\x03\0\0\0????abc".to_vec();
    let mut checked = chunk[..16].to_vec();
    checked.extend_from_slice(b"abc");
    chunk[16..20].copy_from_slice(&crc32fast::hash(&checked).to_le_bytes());
    let scopes = bytes.windows(4).position(|w| w == b"SCOP").unwrap();
    bytes.splice(scopes..scopes, chunk);
    let (loaded, report) = load_from(&bytes[..]).unwrap();
    assert_eq!(loaded, whole);
    assert_eq!(report.unknown_chunks, 1);
}

#[test]
fn other_files_are_refused_with_one_clear_line() {
    let message = |bytes: &[u8]| load_from(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "the file is empty");
    assert!(message(b"\x80\x04K\x01.").starts_with("not a memtrack recording"));
    assert!(message(b"MEMTRACK").contains("cut or damaged"));
    assert!(message(b"MEMTRACK\x01\0\0\0\0\0\0\0").contains("cut or damaged"));
    let mut newer = b"MEMTRACK".to_vec();
    newer.extend_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    newer.extend_from_slice(&crc32fast::hash(&newer).to_le_bytes());
    assert!(message(&newer).contains("use a newer memtrack"));
    assert!(!message(&newer).contains('\n'));
}

#[test]
fn a_header_alone_is_an_empty_recording_that_was_cut() {
    let bytes = empty().save_to(Vec::new()).unwrap();
    let (loaded, report) = load_from(&bytes[..16]).unwrap();
    assert!(loaded.events.is_empty() && report.warning().is_some());
}

/// Recomputes the checksum of every chunk, so that changes reach the decoders.
fn sign(bytes: &mut [u8]) {
    let mut at = 16;
    while let Some(head) = bytes.get(at..at + 20) {
        let stored = u32::from_le_bytes(head[12..16].try_into().unwrap()) as usize;
        let Some(payload) = bytes.get(at + 20..at + 20 + stored) else { return };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[..16]);
        crc.update(payload);
        bytes[at + 16..at + 20].copy_from_slice(&crc.finalize().to_le_bytes());
        at += 20 + stored;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn changed_bytes_never_panic(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = small().save_to(Vec::new()).unwrap();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let _ = load_from(&bytes[..]);
    }

    #[test]
    fn changed_and_signed_bytes_never_panic(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = small().save_to(Vec::new()).unwrap();
        for (place, value) in changes {
            let place = 16 + place.index(bytes.len() - 16);
            bytes[place] = value;
        }
        sign(&mut bytes);
        if let Ok((loaded, _)) = load_from(&bytes[..]) {
            // Every id in the loaded events refers to an existing row.
            for event in loaded.events.iter() {
                let _ = (&loaded.scopes.rows[event.scope.index()], &loaded.threads[event.thread.index()]);
                let _ = loaded.stacks.get(event.stack);
            }
        }
    }

    #[test]
    fn noise_never_panics(noise in vec(any::<u8>(), 0..300)) {
        let mut bytes = small().save_to(Vec::new()).unwrap()[..16].to_vec();
        let _ = load_from(&noise[..]);
        bytes.extend(noise);
        let _ = load_from(&bytes[..]);
    }
}
