//! The ring keeps exactly the newest `max_entries` events of each device in merge order, and counts the dropped ones. The oracle
//! is the stream to a file, which keeps everything: `max_entries` bounds the memory, not the file.

use memtrack_core::By;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::Age;
use memtrack_core::event::{Action, DeviceId, Event, StreamId};
use memtrack_core::recorder::{Context, Enabled, Options, record_alloc, record_free};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::alone;
use memtrack_tests::replay::{replay, statistics};
use std::thread;

const STREAM: StreamId = StreamId(0);

fn options() -> Options {
    Options::new().without_host_heap().context(Context::None)
}

/// Records from several threads on three devices, in bursts of varying length; the last device gets only a few events.
fn bursts() {
    thread::scope(|threads| {
        for number in 0..4_u64 {
            threads.spawn(move || {
                for round in 0..900_u64 {
                    let device =
                        DeviceId(if round % 300 == 0 { 2 } else { (round / (number + 1) % 2) as u16 });
                    for block in 0..number + round % 5 {
                        let address = (number << 32) + (round % 7) * 0x1_0000 + block;
                        record_alloc(device, STREAM, address, round + 1);
                        if block % 2 == 0 {
                            record_free(device, STREAM, address, round + 1);
                        }
                    }
                }
            });
        }
    });
}

fn events_of(snapshot: &Snapshot, device: DeviceId) -> Vec<Event> {
    snapshot.events.rows_of(device).map(|row| snapshot.events.get(row)).collect()
}

#[test]
fn each_device_keeps_exactly_its_newest_entries() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    for max_entries in [1, 2, 63, 64, 65, 1000, 4097, 1 << 20] {
        let path = folder.path().join(format!("{max_entries}.memtrack"));
        memtrack_core::start_monitor_with(&options().max_entries(max_entries).stream_to(&path)).unwrap();
        bursts();
        let recording = memtrack_core::stop();
        let (everything, report) = Snapshot::load(&path).unwrap();
        assert!(report.complete);
        for device in [DeviceId(0), DeviceId(1), DeviceId(2)] {
            let mut all = events_of(&everything, device);
            // Merge order: by ticks, then by thread.
            all.sort_by_key(|event| (event.ticks, event.thread));
            let kept = events_of(recording.snapshot(), device);
            let newest = &all[all.len().saturating_sub(max_entries as usize)..];
            assert!(kept == newest, "{max_entries} of {device}: {} kept of {}", kept.len(), all.len());
            let counts = statistics(recording.snapshot(), device);
            assert_eq!(counts.recorded, all.len() as u64, "{max_entries} of {device}");
            assert_eq!(counts.dropped, (all.len() - kept.len()) as u64, "{max_entries} of {device}");
        }
        assert_eq!(everything.blocks.len(), recording.snapshot().blocks.len());
    }
}

#[test]
fn state_mode_keeps_live_blocks_and_the_newest_event_of_each_device() {
    alone!();
    memtrack_core::start_monitor_with(&options().enabled(Enabled::State).context(Context::State)).unwrap();
    for address in 1..=1000 {
        record_alloc(DeviceId(0), STREAM, address, 10);
        record_alloc(DeviceId(5), STREAM, address, 20);
    }
    (1..=900).for_each(|address| record_free(DeviceId(0), STREAM, address, 10));
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let newest = events_of(snapshot, DeviceId(0));
    assert_eq!(newest.iter().map(|e| (e.action, e.address)).collect::<Vec<_>>(), [(Action::Free, 900)]);
    let newest = events_of(snapshot, DeviceId(5));
    assert_eq!(newest.iter().map(|e| (e.action, e.address)).collect::<Vec<_>>(), [(Action::Alloc, 1000)]);
    assert_eq!(snapshot.blocks.len(), 100 + 1000);
    assert!(snapshot.blocks.iter().all(|block| !block.stack.is_none()));
    assert_eq!(statistics(snapshot, DeviceId(0)).dropped, 1899);
}

#[test]
fn enabled_none_records_nothing_and_does_not_affect_other_monitors() {
    alone!();
    memtrack_core::start_monitor_with(&options().enabled(Enabled::None)).unwrap();
    record_alloc(DeviceId(0), STREAM, 1, 10);
    memtrack_core::start_monitor_with(&options()).unwrap();
    record_alloc(DeviceId(0), STREAM, 2, 10);
    let inner = memtrack_core::stop();
    assert_eq!(events_of(inner.snapshot(), DeviceId(0)).len(), 1);
    let outer = memtrack_core::stop();
    assert!(outer.snapshot().events.is_empty() && outer.snapshot().blocks.is_empty());
}

#[test]
fn a_tracker_with_enabled_none_does_not_end_another_session() {
    alone!();
    let mut idle = memtrack_core::tracker::MemoryTracker::on(DeviceId(0));
    idle.start_monitor_with(&options().enabled(Enabled::None)).unwrap();
    memtrack_core::start_monitor_with(&options()).unwrap();
    record_alloc(DeviceId(0), STREAM, 1, 10);
    idle.stop();
    record_alloc(DeviceId(0), STREAM, 2, 10);
    assert_eq!(memtrack_core::stop().snapshot().events.len(), 2);
}

#[test]
fn skipped_actions_make_no_events_but_live_blocks_are_tracked() {
    alone!();
    let run = |skipped: &[Action]| {
        memtrack_core::start_monitor_with(&options().skip_actions(skipped.iter().copied())).unwrap();
        for address in 1..=100 {
            record_alloc(DeviceId(0), STREAM, address, 10);
        }
        (1..=40).for_each(|address| record_free(DeviceId(0), STREAM, address, 10));
        memtrack_core::stop()
    };
    let unskipped = run(&[]);
    replay(unskipped.snapshot(), DeviceId(0)).assert_blocks_of(unskipped.snapshot(), DeviceId(0));
    for (skipped, events) in
        [(&[Action::Free][..], 100), (&[Action::Alloc], 40), (&[Action::Alloc, Action::Free], 0)]
    {
        let recording = run(skipped);
        let counts = statistics(recording.snapshot(), DeviceId(0));
        assert_eq!(recording.snapshot().events.len(), events, "{skipped:?}");
        assert!(recording.snapshot().events.action.iter().all(|action| !skipped.contains(action)));
        assert_eq!((recording.snapshot().blocks.len(), counts.dropped), (60, 0));
        assert_eq!((counts.allocations, counts.frees, counts.freed_bytes), (100, 40, 400));
    }
}

#[test]
fn a_new_session_contains_nothing_of_the_old_one() {
    alone!();
    memtrack_core::start_monitor_with(&options()).unwrap();
    (1..=100).for_each(|address| record_alloc(DeviceId(0), STREAM, address, 10));
    assert_eq!(memtrack_core::stop().snapshot().blocks.len(), 100);
    record_alloc(DeviceId(0), STREAM, 500, 10);
    memtrack_core::start_monitor_with(&options().max_entries(60)).unwrap();
    record_free(DeviceId(0), STREAM, 7, 10);
    (101..=200).for_each(|address| record_alloc(DeviceId(0), STREAM, address, 10));
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    assert!(snapshot.blocks.iter().all(|block| (101..=200).contains(&block.address)));
    assert_eq!((snapshot.blocks.len(), snapshot.events.len()), (100, 60));
    let counts = statistics(snapshot, DeviceId(0));
    assert_eq!((counts.recorded, counts.dropped, counts.allocations, counts.frees), (101, 41, 100, 1));
}

#[inline(never)]
fn place_that_the_ring_forgets(address: u64, size_bytes: u64) {
    record_alloc(DeviceId(0), STREAM, address, size_bytes);
    std::hint::black_box(address);
}

#[test]
fn blocks_whose_allocations_were_dropped_are_known_from_frees_and_live_blocks() {
    alone!();
    let options = Options::new().without_host_heap().context(Context::Alloc).max_entries(10);
    memtrack_core::start_monitor_with(&options).unwrap();
    for (address, size_bytes) in [(1 << 32, 5000), (2 << 32, 3000)] {
        place_that_the_ring_forgets(address, size_bytes);
    }
    for _ in 0..20 {
        record_alloc(DeviceId(0), STREAM, 3 << 32, 7);
        record_free(DeviceId(0), STREAM, 3 << 32, 7);
    }
    record_free(DeviceId(0), STREAM, 1 << 32, 5000);
    let recording = memtrack_core::stop();
    assert_eq!(recording.snapshot().events.len(), 10);
    let peak = recording.top_at(Moment::Peak, By::Stack, 10);
    assert_eq!((peak.rows[0].allocated_bytes, peak.rows[0].count), (8000, 2), "{peak}");
    assert!(peak.rows[0].name.contains("place_that_the_ring_forgets"), "{peak}");
    let end = recording.top_at(Moment::End, By::Line, 10);
    assert_eq!((end.rows.len(), end.rows[0].allocated_bytes), (1, 3000), "{end}");
    // The block was allocated before the oldest event in the ring.
    let ticks = &recording.snapshot().events.ticks;
    let clock = &recording.snapshot().clock;
    let trace = clock.time_ns(*ticks.iter().max().unwrap()) - clock.time_ns(*ticks.iter().min().unwrap());
    match end.rows[0].trend.age.unwrap().oldest {
        Age::Exact(ns) => assert!(ns >= trace, "{ns} {trace}"),
        bound => panic!("{bound:?}"),
    }
    // The freed block was live at the recording's halfway point.
    assert_eq!(end.rows[0].trend.growth.unwrap().bytes(), -5000);
}
