//! Everything that is written to a recording is read back.

use memtrack_core::event::{
    Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, TaskId, ThreadId,
};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::recording::{RecordingWriter, load_from};
use memtrack_core::snapshot::{
    Clock, DeviceStatistics, DriverReading, LiveBlock, Meta, Module, ReadingMoment, Scope, ScopeKind,
    Segment, Snapshot, Task, TaskPlace, Thread,
};
use memtrack_tests::snapshots::{empty, event, small};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn a_snapshot_is_read_back_unchanged() {
    let folder = std::env::temp_dir().join(format!("memtrack-round-trip-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("run.memtrack");
    std::fs::write(&path, "older").unwrap();
    small().save(&path).unwrap();
    let (loaded, report) = Snapshot::load(&path).unwrap();
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(loaded, small());
    assert!(report.complete && report.lost_bytes == 0 && report.warning().is_none(), "{report:?}");
    assert_eq!(names, ["run.memtrack"]);
}

#[test]
fn an_incomplete_snapshot_stays_incomplete() {
    let mut snapshot = small();
    snapshot.meta.complete = false;
    let bytes = snapshot.save_to(Vec::new()).unwrap();
    let (loaded, report) = load_from(&bytes[..]).unwrap();
    assert_eq!(loaded, snapshot);
    assert!(!report.complete && report.warning().is_some());
}

#[test]
fn an_unwritable_path_is_an_error() {
    assert!(small().save("/no/such/folder/run.memtrack").is_err());
}

#[test]
fn events_of_several_threads_are_merged_by_ticks() {
    let mut writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0)).unwrap();
    let of = |thread, ticks| Event { thread: ThreadId(thread), ..event(ticks, Action::Alloc, ticks, 1) };
    writer.threads(&[(ThreadId(2), Thread::default()), (ThreadId(1), Thread::default())]).unwrap();
    writer.events(&[of(1, 10), of(1, 30), of(1, 30)]).unwrap();
    writer.events(&[of(2, 5), of(2, 20), of(2, 30)]).unwrap();
    let bytes = writer.finish(&[], &[], &[]).unwrap();
    let (loaded, _) = load_from(&bytes[..]).unwrap();
    assert_eq!(loaded.events.ticks, [5, 10, 20, 30, 30, 30]);
    assert_eq!(loaded.events.thread.iter().map(|t| t.0).collect::<Vec<_>>(), [2, 1, 2, 1, 1, 2]);
}

#[test]
fn live_blocks_of_a_killed_stream_come_from_its_events() {
    let snapshot = small();
    let mut bytes = Vec::new();
    let mut writer = RecordingWriter::new(&mut bytes, &snapshot.meta, snapshot.clock.first).unwrap();
    writer.stacks(StackId(1), (1..3).map(|id| snapshot.stacks.get(StackId(id)))).unwrap();
    let scopes: Vec<_> = (0..).map(ScopeId).zip(snapshot.scopes.rows.clone()).collect();
    writer.scopes(&scopes).unwrap();
    writer.threads(&[(ThreadId(1), snapshot.threads[1].clone())]).unwrap();
    writer.events(&snapshot.events.iter().collect::<Vec<_>>()).unwrap();
    writer.clock(snapshot.clock.last).unwrap();
    drop(writer);
    let (loaded, report) = load_from(&bytes[..]).unwrap();
    assert!(report.replayed && !report.complete && !loaded.meta.complete);
    assert_eq!(loaded.blocks, snapshot.blocks);
    assert_eq!(loaded.devices, snapshot.devices);
    assert_eq!(loaded.clock, snapshot.clock);
}

#[test]
fn a_writer_whose_output_failed_once_keeps_failing() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > self.0 {
                self.0 = usize::MAX;
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = RecordingWriter::new(Full(400), &Meta::default(), (0, 0)).unwrap();
    let noise: Vec<_> =
        (0..200).map(|i| event(i * i * 7919, Action::Alloc, i * i * i * 104_729, i)).collect();
    assert!(writer.events(&noise).is_err());
    assert!(writer.clock((1, 1)).is_err());
}

#[test]
fn a_long_recording_compresses_well() {
    let mut snapshot = empty();
    for i in 0..100_000u64 {
        let address = 0x7f00_0000_0000 + i % 64 * 8192;
        snapshot.events.push(&event(i * 900 + i % 7, Action::Alloc, address, 4096));
        snapshot.events.push(&event(i * 900 + 450, Action::Free, address, 4096));
    }
    let bytes = snapshot.save_to(Vec::new()).unwrap();
    assert!(bytes.len() < 200_000 * 12, "{} bytes for 200,000 events", bytes.len());
    assert_eq!(load_from(&bytes[..]).unwrap().0, snapshot);
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let ids = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), 0..4u32, 0..5u32, 0..3u32);
    let rest = (prop_oneof![Just(DeviceId::HOST), any::<u16>().prop_map(DeviceId)], 0..11u8, any::<u8>());
    let one =
        (ids, rest).prop_map(|((ticks, address, size_bytes, stream, stack, scope, thread), rest)| Event {
            ticks,
            address,
            size_bytes,
            stream: StreamId(stream),
            stack: StackId(stack),
            scope: ScopeId(scope),
            thread: ThreadId(thread),
            device: rest.0,
            action: Action::from_number(rest.1).unwrap(),
            // No snapshot contains a superseded event: readers omit such events.
            flags: EventFlags(rest.2 & !EventFlags::SUPERSEDED.0),
        });
    vec(one, 0..50)
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let module =
        (".*", any::<[u64; 3]>(), "[0-9a-f]{0,40}").prop_map(|(path, [bias, start, end], build_id)| Module {
            path,
            bias,
            start,
            end,
            build_id: build_id.clone(),
            code_id: build_id,
        });
    let stacks = vec(vec(any::<u64>(), 0..20), 3);
    let name = ".{0,30}";
    let scopes = vec((name, 0..5usize), 4);
    (
        events(),
        vec(module, 0..3),
        stacks,
        scopes,
        vec((name, any::<u64>()), 2),
        any::<[u64; 4]>(),
        any::<bool>(),
    )
        .prop_map(|(mut events, modules, stacks, scopes, threads, clock, complete)| {
            events.sort_by_key(|event| event.ticks);
            let mut snapshot = empty();
            snapshot.meta.complete = complete;
            snapshot.modules = modules;
            snapshot.clock = Clock { first: (clock[0], clock[1]), last: (clock[2], clock[3]) };
            for stack in stacks {
                snapshot.stacks.push(&stack);
            }
            let kinds = [
                ScopeKind::Operator,
                ScopeKind::Module,
                ScopeKind::Root,
                ScopeKind::Backward,
                ScopeKind::Optimizer,
            ];
            for (place, (name, kind)) in scopes.into_iter().enumerate() {
                snapshot.scopes.rows.push(Scope { parent: ScopeId(place as u32), kind: kinds[kind], name });
            }
            snapshot.threads = std::iter::once(Thread::default())
                .chain(threads.into_iter().map(|(name, os_id)| Thread { name, os_id }))
                .collect();
            for event in &events {
                snapshot.events.extend_recorded(&[*event]);
                let pending_free = event.ticks % 2 == 0;
                snapshot.blocks.push(LiveBlock { pending_free, ..LiveBlock::of_recorded(event) });
                snapshot.tasks.places.push(TaskPlace {
                    name: snapshot.threads[1].name.clone(),
                    file: snapshot.threads[2].name.clone(),
                    line: event.stack.0,
                    begun: event.address,
                    ended: event.size_bytes,
                });
                snapshot.tasks.rows.push(Task {
                    id: TaskId(event.address),
                    parent: TaskId(event.size_bytes),
                    scope: event.scope,
                    begun_ticks: event.ticks,
                    ended_ticks: event.stream.0,
                });
                snapshot.segments.push(Segment {
                    device: event.device,
                    address: event.address,
                    size_bytes: event.size_bytes,
                    stream: event.stream,
                    stack: event.stack,
                    ticks: event.ticks,
                    is_expandable: event.address % 2 == 0,
                });
                snapshot.driver.push(DriverReading {
                    device: DeviceId(event.device.0 % 31),
                    moment: if event.ticks % 2 == 0 { ReadingMoment::Fullest } else { ReadingMoment::Last },
                    ticks: event.ticks,
                    free_bytes: event.address,
                    pool_used_bytes: event.size_bytes,
                    ..DriverReading::default()
                });
            }
            snapshot.devices =
                vec![DeviceStatistics { dropped: clock[0], ..DeviceStatistics::of(DeviceId::HOST) }];
            snapshot
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_snapshot_is_read_as_it_was_written(snapshot in snapshots()) {
        let bytes = snapshot.save_to(Vec::new()).unwrap();
        let (loaded, report) = load_from(&bytes[..]).unwrap();
        prop_assert_eq!(loaded, snapshot);
        prop_assert_eq!((report.lost_bytes, report.unknown_ids, report.damaged), (0, 0, false));
    }
}
