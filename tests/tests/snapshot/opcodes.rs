//! The viewer at pytorch.org/memory_viz supports few pickle instructions and no integers above 2^63. memtrack writes only what
//! the viewer supports, whatever the recording contains.

use memtrack_core::event::{Action, DeviceId, Event, ScopeId, StackId, StreamId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::pytorch::{Key, LoadOptions};
use memtrack_core::snapshot::{LiveBlock, Scope, ScopeKind, Segment, Snapshot};
use memtrack_core::stack::symbols::{Frame, Symbolizer};
use memtrack_core::viz::{Stats, memory_folded, segments_folded, trace};
use memtrack_tests::opcodes::{assert_known_to_the_viewer, instructions};
use memtrack_tests::snapshots::{empty, event, pickle};
use memtrack_tests::{fixture, oracle};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn read(bytes: &[u8]) -> Snapshot {
    Snapshot::open_stream(bytes, LoadOptions::default()).unwrap().snapshot
}

fn texts(snapshot: &Snapshot) -> Vec<u8> {
    let snapshot = &PytorchSnapshot::try_from(snapshot.clone()).unwrap();
    let mut out = Vec::new();
    Stats::of(snapshot).write_text(&mut out).unwrap();
    trace(snapshot, &mut out).unwrap();
    segments_folded(snapshot, &mut out).unwrap();
    memory_folded(snapshot, &mut out).unwrap();
    out
}

/// Numbers of every width, and values that an allocator with handles may report.
const NUMBERS: [u64; 14] = [
    0,
    255,
    256,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xff_ffff_ffff,
    1 << 47,
    (1 << 63) - 1,
    1 << 63,
    // A tagged pointer, as on Android.
    0xb400_0071_2345_6780,
    u64::MAX - 1,
    u64::MAX,
];

fn block(alloc: &Event) -> LiveBlock {
    LiveBlock { pending_free: alloc.ticks.is_multiple_of(3), ..memtrack_tests::snapshots::live(alloc) }
}

/// Returns a recording with every action, numbers of every width, long names and many frames, and the frames of its addresses.
fn recording() -> (Snapshot, Vec<(u64, Vec<Frame>)>) {
    let mut snapshot = empty();
    let names = ["é".repeat(200), "😀\u{1}\"'\\".into(), String::new(), "x".repeat(70_000)];
    for name in names {
        let scope = Scope { parent: ScopeId::NONE, kind: ScopeKind::Operator, name };
        snapshot.scopes.rows.push(scope);
    }
    let mut frames = Vec::new();
    let mut stacks = vec![StackId::NONE];
    for number in 0..400_u64 {
        let addresses: Vec<u64> = (1..=number % 5 + 1).map(|depth| number * 10 + depth).collect();
        stacks.push(snapshot.stacks.push(&addresses));
        frames.extend(addresses.into_iter().map(|address| {
            let file = (address % 3 > 0).then(|| format!("src/é{address}.rs"));
            let frame = Frame {
                function: format!("f{address}"),
                file,
                line: Some(address as u32 * 1000),
                ..Frame::default()
            };
            (address, vec![frame])
        }));
    }
    let actions = Action::ALL;
    for round in 0..3000_usize {
        let at = |offset: usize| NUMBERS[(round + offset) % NUMBERS.len()];
        let alloc = Event {
            stream: StreamId(at(round / 14)),
            stack: stacks[round % stacks.len()],
            scope: ScopeId(round as u32 % 5),
            device: if round % 7 == 0 { DeviceId::HOST } else { DeviceId(round as u16 % 3) },
            ..event(round as u64 * 1_000_000, actions[round % actions.len()], at(0), at(round / 5))
        };
        snapshot.events.push(&alloc);
        if round % 11 == 0 {
            snapshot.blocks.push(block(&alloc));
        }
        if round % 101 == 0 {
            let Event { device, address, size_bytes, stream, stack, ticks, .. } = alloc;
            let is_expandable = round % 2 == 0;
            snapshot.segments.push(Segment {
                device,
                address,
                size_bytes,
                stream,
                stack,
                ticks,
                is_expandable,
            });
        }
    }
    (snapshot, frames)
}

#[test]
fn a_recording_is_written_as_the_viewer_reads_it() {
    let (recording, frames) = recording();
    let symbols = Symbolizer::of(&recording);
    let mut symbols = frames.into_iter().fold(symbols, |symbols, (at, names)| symbols.with_frames(at, names));
    let converted = recording.as_pytorch(&mut symbols);
    let written = pickle(&converted);
    assert_known_to_the_viewer("the recording", &written);
    let used: BTreeSet<_> = instructions(&written).iter().map(|one| one.name).collect();
    for name in ["LONG1", "LONG_BINGET", "BINUNICODE", "TUPLE2", "NEWFALSE", "BININT", "APPENDS"] {
        assert!(used.contains(name), "{name} was not tested");
    }
    // Addresses and handles keep all their bits, and reports about the file contain the same texts.
    let back = read(&written);
    let handles = |snapshot: &Snapshot| {
        let events = snapshot.events.iter().filter(|event| event.action != Action::Oom);
        events.map(|event| (event.address, event.stream)).collect::<Vec<_>>()
    };
    assert_eq!(handles(&back), handles(&converted));
    let rows =
        |device| recording.events.rows_of(device).filter(|&row| recording.events.action[row] != Action::Oom);
    let recorded: BTreeSet<_> = recording
        .device_ids()
        .into_iter()
        .flat_map(|device| rows(device).map(|row| recording.events.address[row]))
        .collect();
    assert_eq!(recorded, back.events.iter().filter(|e| e.action != Action::Oom).map(|e| e.address).collect());
    assert!(back.events.size_bytes.iter().all(|&size| size < 1 << 63));
    assert!(back.segments == converted.segments);
    assert!(back.segments.iter().any(|segment| segment.address > 1 << 63));
    assert_eq!(texts(&back), texts(&converted));
    assert_eq!(pickle(&back), written);
}

#[test]
fn addresses_above_2_to_the_63_are_written_as_negative_numbers() {
    let mut snapshot = empty();
    let tagged = 0xb400_0071_2345_6780;
    snapshot.events.push(&event(1000, Action::Alloc, tagged, u64::MAX));
    let converted = snapshot.as_pytorch(&mut Symbolizer::of(&snapshot));
    let address = converted.event_value(0, Key::Addr).and_then(|value| value.as_i128());
    assert_eq!(address, Some(i128::from(tagged as i64)));
    assert_eq!((converted.events.address[0], converted.events.size_bytes[0]), (tagged, i64::MAX as u64));
}

/// Files with values that no pickle instruction known to the viewer can represent. Python's own pickler would write these
/// values in the same way as memtrack.
const UNSUPPORTED_BY_THE_VIEWER: [&str; 2] = ["int_bounds.pickle", "trace_unknown_action.pickle"];

/// Rewrites the small snapshots in these folders, and asserts that the viewer supports the instructions.
fn check_for_the_viewer(folders: &[PathBuf]) {
    let files = |folder: &PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for path in folders.iter().flat_map(files) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let large = path.metadata().unwrap().len() > 250_000;
        if !name.contains(".pickle") || large || UNSUPPORTED_BY_THE_VIEWER.contains(&&*name) {
            continue;
        }
        let snapshot = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        assert_known_to_the_viewer(&name, &pickle(&snapshot));
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn snapshots_from_pytorch_are_written_as_the_viewer_reads_them() {
    check_for_the_viewer(&[oracle("snapshots/synth"), oracle("pickles"), fixture("snapshots/samples")]);
    for name in UNSUPPORTED_BY_THE_VIEWER {
        let path = oracle("snapshots/synth").join(name);
        let written = pickle(&Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot);
        let original = std::fs::read(path).unwrap();
        let widest = |pickle: &[u8]| {
            let ops = instructions(pickle).into_iter();
            ops.filter(|one| one.name == "LONG1").map(|one| one.operand.len()).max()
        };
        assert_eq!(widest(&written), widest(&original), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_viewer_can_read_every_recording(
        numbers in prop::collection::vec((any::<[u64; 4]>(), 0..12_u8, any::<u16>()), 0..40),
        scope in "\\PC{0,300}",
    ) {
        let mut snapshot = empty();
        snapshot.scopes.rows.push(Scope { parent: ScopeId::NONE, kind: ScopeKind::Module, name: scope });
        for (place, ([address, size, stream, ticks], action, device)) in numbers.into_iter().enumerate() {
            let action = Action::from_number(action).unwrap();
            let made = Event {
                stream: StreamId(stream),
                device: DeviceId(device % 4),
                scope: ScopeId(u32::from(device % 2)),
                ..event(ticks, action, address, size)
            };
            snapshot.events.push(&made);
            match place % 3 {
                0 => snapshot.blocks.push(block(&made)),
                1 => {
                    let Event { device, address, size_bytes, stream, stack, ticks, .. } = made;
                    let is_expandable = address % 2 == 0;
                    snapshot.segments.push(Segment { device, address, size_bytes, stream, stack, ticks, is_expandable });
                }
                _ => {}
            }
        }
        let converted = snapshot.as_pytorch(&mut Symbolizer::of(&snapshot));
        let written = pickle(&converted);
        assert_known_to_the_viewer("a recording", &written);
        let back = read(&written);
        prop_assert_eq!(texts(&back), texts(&converted));
        prop_assert_eq!(pickle(&back), written);
    }
}
