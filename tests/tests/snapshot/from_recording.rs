//! A recording is converted to a snapshot that PyTorch's tools read: the snapshot's structure, names and scopes, and the file as
//! CPython loads it.

use memtrack_core::event::{Action, DeviceId, Event, ScopeId, StackId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{Key, LoadOptions};
use memtrack_core::snapshot::{DriverReading, LiveBlock, ReadingMoment, Scope, ScopeKind, Segment, Snapshot};
use memtrack_core::stack::symbols::{Frame, Symbolizer};
use memtrack_tests::snapshots::{empty, event};
use memtrack_tests::{fixture, oracle};
use std::path::Path;
use std::process::Command;

/// Returns a recording of two blocks in a segment of device 0, one of which is freed, and a host block without a segment.
fn recording() -> Snapshot {
    let mut snapshot = empty();
    let stack = snapshot.stacks.push(&[0x1000, 0x2000]);
    let scope = |parent, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
    snapshot.scopes.rows.push(scope(0, ScopeKind::Module, "encoder"));
    snapshot.scopes.rows.push(scope(1, ScopeKind::Operator, "matmul"));
    let on_device = |ticks, action, address, size| Event {
        device: DeviceId(0),
        stack,
        scope: ScopeId(2),
        ..event(ticks, action, address, size)
    };
    for event in [
        on_device(1_000, Action::SegmentAlloc, 0x7000_0000, 2 << 20),
        on_device(2_000, Action::Alloc, 0x7000_0000, 1000),
        on_device(3_000, Action::Alloc, 0x7000_0800, 500),
        on_device(4_000, Action::Free, 0x7000_0000, 1000),
        Event { stack: StackId::NONE, ..on_device(5_000, Action::Oom, 77, 512) },
        event(6_000, Action::Alloc, 0x5000, 64),
    ] {
        snapshot.events.push(&event);
    }
    let block = |device, address, size_bytes, stack| LiveBlock {
        device,
        address,
        size_bytes,
        stream: Default::default(),
        task: Default::default(),
        stack,
        scope: ScopeId(2),
        ticks: 0,
        flags: Default::default(),
        pending_free: false,
    };
    snapshot.blocks.push(block(DeviceId::HOST, 0x5000, 64, StackId::NONE));
    snapshot.blocks.push(block(DeviceId(0), 0x7000_0800, 500, stack));
    snapshot.segments.push(Segment {
        device: DeviceId(0),
        address: 0x7000_0000,
        size_bytes: 2 << 20,
        stream: Default::default(),
        stack,
        ticks: 1,
        is_expandable: true,
    });
    snapshot
}

fn symbols(snapshot: &Snapshot) -> Symbolizer {
    let frame = |name: &str, line| Frame {
        function: name.into(),
        file: Some("src/a.rs".into()),
        line: Some(line),
        ..Frame::default()
    };
    Symbolizer::of(snapshot)
        .with_frames(0x1000, vec![frame("inlined", 1), frame("alloc", 2)])
        .with_frames(0x2000, vec![frame("main", 3)])
}

#[test]
fn a_recording_has_pytorchs_structure() {
    let recording = recording();
    let snapshot = recording.as_pytorch(&mut symbols(&recording));
    let pytorch = snapshot.pytorch.as_deref().unwrap();
    assert_eq!(pytorch.traces, [0..6, 6..7]);
    let actions: Vec<_> = snapshot.events.action.iter().map(|action| action.name()).collect();
    let free = ["free_requested", "free_completed"];
    assert_eq!(actions, ["segment_alloc", "alloc", "alloc", free[0], free[1], "oom", "alloc"]);
    assert_eq!(snapshot.events.ticks[..4], [1, 2, 3, 4]);
    let text = |id| snapshot.strings.get(id).into_owned();
    assert_eq!(text(pytorch.events.text(1, Key::UserMetadata)), "encoder.forward.matmul");
    let frames = snapshot.named.get(snapshot.events.stack[1]);
    let names: Vec<_> = frames.iter().map(|&frame| text(snapshot.frames.name(frame))).collect();
    assert_eq!(names, ["inlined", "alloc", "main"]);
    assert!(!pytorch.events.has(5, Key::Frames) && pytorch.events.has(5, Key::DeviceFree));
    let states: Vec<_> =
        (0..pytorch.blocks.len()).map(|row| text(pytorch.blocks.text(row, Key::State))).collect();
    assert_eq!(states, ["inactive", "active_allocated", "inactive", "active_allocated"]);
    for row in 0..pytorch.segments.len() {
        let sizes =
            pytorch.segments.rows(row, Key::Blocks).map(|block| pytorch.blocks.number(block, Key::Size));
        assert_eq!(sizes.sum::<u64>(), pytorch.segments.number(row, Key::TotalSize));
    }
}

#[test]
fn every_format_of_a_recording_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recording();
    let converted = recording.as_pytorch(&mut symbols(&recording));
    for name in ["a.pickle", "a.json.gz", "a.pickle.zst"] {
        let path = folder.path().join(name);
        recording.save_as(&path, &mut symbols(&recording)).unwrap();
        let loaded = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        assert_eq!(loaded.events.action, converted.events.action, "{name}");
        assert_eq!(loaded.events.ticks, converted.events.ticks, "{name}");
        assert_eq!(loaded.blocks.len(), 2, "{name}");
        assert_eq!(loaded.device_ids(), [DeviceId(0), DeviceId(1)], "{name}");
    }
}

#[test]
fn scopes_with_any_names_are_read_back() {
    let mut recording = empty();
    let chains: [&[(ScopeKind, &str)]; 8] = [
        &[(ScopeKind::Operator, "action")],
        &[(ScopeKind::Operator, "forward")],
        &[(ScopeKind::Backward, "backward")],
        &[(ScopeKind::Module, "a.b"), (ScopeKind::Operator, "c")],
        &[(ScopeKind::Module, "name"), (ScopeKind::Module, "line"), (ScopeKind::Module, "filename")],
        &[(ScopeKind::Root, "Net"), (ScopeKind::Module, "enc"), (ScopeKind::Operator, "x.forward.y")],
        &[(ScopeKind::Optimizer, "adam"), (ScopeKind::Operator, "outer"), (ScopeKind::Operator, "innér 😀")],
        &[],
    ];
    for (number, chain) in chains.into_iter().enumerate() {
        let mut scope = ScopeId::NONE;
        for &(kind, name) in chain {
            recording.scopes.rows.push(Scope { parent: scope, kind, name: name.into() });
            scope = ScopeId(recording.scopes.rows.len() as u32 - 1);
        }
        let at = number as u64 + 1;
        recording.events.push(&Event { scope, ..event(at * 1000, Action::Alloc, at << 12, at) });
    }
    let folder = tempfile::tempdir().unwrap();
    let converted = recording.as_pytorch(&mut Symbolizer::of(&recording));
    for name in ["a.pickle", "a.json", "a.memtrack"] {
        let path = folder.path().join(name);
        converted.save_as(&path, &mut Symbolizer::of(&converted)).unwrap();
        let back = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        for row in 0..chains.len() {
            let place =
                |snapshot: &'_ Snapshot| format!("{:?}", snapshot.scopes.place(snapshot.events.scope[row]));
            assert_eq!(place(&back), place(&recording), "{name}");
        }
        assert_eq!(back.scopes, converted.scopes, "{name}");
    }
}

#[test]
fn driver_readings_are_read_back_in_the_files_unit_of_time() {
    let mut recording = recording();
    let reading = DriverReading {
        device: DeviceId(0),
        moment: ReadingMoment::OutOfMemory,
        ticks: 5_000,
        free_bytes: 3 << 30,
        total_bytes: 8 << 30,
        tracked_bytes: 1 << 30,
        pools: 2,
        pool_reserved_bytes: 2 << 30,
        pool_used_bytes: 1 << 30,
        opened: 1,
        opened_bytes: 7,
        ..DriverReading::default()
    };
    let larger = DriverReading { device: DeviceId(30), free_bytes: u64::MAX, ..reading };
    recording.driver = vec![reading, larger];
    let expected: Vec<_> =
        recording.driver.iter().map(|reading| DriverReading { ticks: 5, ..*reading }).collect();
    let folder = tempfile::tempdir().unwrap();
    let converted = recording.as_pytorch(&mut symbols(&recording));
    assert_eq!(converted.driver, expected);
    for name in ["a.pickle", "a.json", "a.memtrack"] {
        let path = folder.path().join(name);
        converted.save_as(&path, &mut symbols(&converted)).unwrap();
        assert_eq!(
            Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot.driver,
            expected,
            "{name}"
        );
    }
    // Unknown keys of a reading stay in the file, and a reading at an unknown moment is ignored.
    let text = std::fs::read_to_string(folder.path().join("a.json")).unwrap();
    let text = text.replacen("\"opened_bytes\"", "\"of a newer memtrack\"", 1);
    for (from, to, readings) in
        [("\"fullest\"", "\"fullest\"", 2), ("\"out_of_memory\"", "\"on a tuesday\"", 1)]
    {
        let path = folder.path().join("b.json");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let loaded = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        assert_eq!(loaded.driver.len(), readings);
        loaded.save_as(&path, &mut symbols(&loaded)).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("of a newer memtrack"));
    }
}

#[test]
fn metadata_of_pytorchs_files_is_no_scope() {
    for path in [fixture("snapshots/samples/annotated.pickle"), oracle("snapshots/synth/sim_2.15.pickle")] {
        let snapshot = Snapshot::open(path, LoadOptions::default()).unwrap().snapshot;
        assert_eq!(snapshot.scopes.rows.len(), 1);
        assert!(snapshot.events.scope.iter().all(|scope| scope.is_none()));
    }
}

/// The script with which CPython checks the file.
const CHECK: &str = r#"
import pickle, pickletools, sys
data = open(sys.argv[1], 'rb').read()
s = pickle.loads(data)
assert list(s) == ['segments', 'device_traces', 'allocator_settings', 'external_annotations', 'host_segments', 'host_traces'], list(s)
g = s['segments'][0]
assert list(g) == ['device', 'address', 'total_size', 'allocated_size', 'active_size', 'requested_size', 'stream',
    'segment_type', 'segment_pool_id', 'is_expandable', 'blocks', 'frames'], list(g)  # frames that are there come last
assert g['segment_pool_id'] == (0, 0) and g['is_expandable'] is True
assert sum(b['size'] for b in g['blocks']) == g['total_size']
e = s['device_traces'][0][1]
assert list(e) == ['action', 'addr', 'size', 'stream', 'time_us', 'compile_context', 'user_metadata', 'pool_id', 'frames'], list(e)
assert e['frames'][0] == {'name': 'inlined', 'filename': 'src/a.rs', 'line': 1}
assert e['frames'] is s['device_traces'][0][0]['frames']
assert 'frames' not in s['device_traces'][0][5] and s['device_traces'][0][5]['device_free'] == 77
known = {'PROTO', 'FRAME', 'STOP', 'MARK', 'EMPTY_DICT', 'SETITEM', 'SETITEMS', 'EMPTY_LIST', 'APPEND', 'APPENDS', 'EMPTY_TUPLE',
    'TUPLE1', 'TUPLE2', 'TUPLE3', 'NONE', 'NEWTRUE', 'NEWFALSE', 'BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT',
    'SHORT_BINUNICODE', 'BINUNICODE', 'BINGET', 'LONG_BINGET', 'MEMOIZE'}
used = {op.name for op, _, _ in pickletools.genops(data)}
assert used <= known, used - known
"#;

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn cpython_reads_the_pickle_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = &folder.path().join("a.pickle");
    let recording = recording();
    recording.save_as(path, &mut symbols(&recording)).unwrap();
    let output = Command::new("python3").args(["-c", CHECK]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
