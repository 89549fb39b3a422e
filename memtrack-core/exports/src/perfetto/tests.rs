//! Tests that read the written trace and compare it with memtrack's reports. `tests/tools/perfetto_trace.py` does the
//! same with Perfetto's own definitions.

use super::*;
use crate::fixtures::{Expected, full_recording, read_snapshots};
use prost::Message;
use prost::bytes::Buf;
use std::collections::BTreeMap;

/// A parsed trace, with names in place of their IDs.
#[derive(Default)]
struct ParsedTrace {
    tracks: BTreeMap<u64, TrackDescriptor>,
    counters: BTreeMap<String, Vec<(u64, i64)>>,
    /// The track, depth, name, start and end of each slice.
    slices: Vec<(String, usize, String, u64, u64)>,
    instants: Vec<(String, String, u64)>,
    dumps: BTreeMap<String, Vec<(u64, Vec<HeapSample>)>>,
    stacks: BTreeMap<(u32, u64), Vec<String>>,
}

fn read(snapshot: &Snapshot) -> ParsedTrace {
    let mut bytes = Vec::new();
    let options = ExportOptions::of(snapshot);
    write(snapshot, &mut Symbolizer::of(snapshot), &options, &mut bytes).unwrap();
    let mut read = ParsedTrace::default();
    let mut names: BTreeMap<(u32, u64), String> = BTreeMap::new();
    let mut functions: BTreeMap<(u32, u64), String> = BTreeMap::new();
    let mut frames: BTreeMap<(u32, u64), String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let mut continued = false;
    let mut rest = &bytes[..];
    while rest.has_remaining() {
        assert_eq!(rest.get_u8(), 0x0a, "the tag of a packet");
        let packet = TracePacket::decode_length_delimited(&mut rest).unwrap();
        let sequence = packet.trusted_packet_sequence_id.unwrap();
        let at = packet.timestamp.unwrap_or_default();
        let fresh = packet.interned_data.unwrap_or_default();
        names.extend(
            fresh.event_names.into_iter().map(|name| ((sequence, name.iid.unwrap()), name.name.unwrap())),
        );
        for name in fresh.function_names {
            functions.insert((sequence, name.iid.unwrap()), String::from_utf8(name.str.unwrap()).unwrap());
        }
        for frame in fresh.frames {
            let name = functions[&(sequence, frame.function_name_id.unwrap())].clone();
            frames.insert((sequence, frame.iid.unwrap()), name);
        }
        for stack in fresh.callstacks {
            let named = stack.frame_ids.iter().map(|&frame| frames[&(sequence, frame)].clone());
            read.stacks.insert((sequence, stack.iid.unwrap()), named.collect());
        }
        match packet.data {
            Some(Data::TrackDescriptor(track)) => {
                assert!(read.tracks.insert(track.uuid.unwrap(), track).is_none());
            }
            Some(Data::TrackEvent(event)) => {
                let uuid = event.track_uuid.unwrap();
                let track = read.tracks[&uuid].name.clone().unwrap();
                let name = event.name_iid.map(|iid| names[&(sequence, iid)].clone()).unwrap_or_default();
                match event.r#type.unwrap() {
                    COUNTER => {
                        read.counters.entry(track).or_default().push((at, event.counter_value.unwrap()))
                    }
                    SLICE_BEGIN => open.entry(uuid).or_default().push((name, at)),
                    SLICE_END => {
                        let open = open.get_mut(&uuid).unwrap();
                        let (name, from) = open.pop().expect("what ends has begun");
                        assert!(from <= at, "{name} ends before it begins");
                        read.slices.push((track, open.len(), name, from, at));
                    }
                    INSTANT => read.instants.push((track, name, at)),
                    other => panic!("an event of type {other}"),
                }
            }
            Some(Data::ProfilePacket(profile)) => {
                let [heap] = &profile.process_dumps[..] else { panic!("one heap in a packet") };
                let dumps = read.dumps.entry(heap.heap_name.clone().unwrap()).or_default();
                if !continued {
                    dumps.push((heap.timestamp.unwrap(), Vec::new()));
                }
                dumps.last_mut().unwrap().1.extend(heap.samples.iter().cloned());
                continued = profile.continued.unwrap();
            }
            Some(Data::ClockSnapshot(_)) | None => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends");
    read
}

/// Returns the bytes and blocks that are live in a dump.
fn live_sums(samples: &[HeapSample]) -> (u64, u64) {
    let bytes =
        samples.iter().map(|sample| sample.self_allocated.unwrap() - sample.self_freed.unwrap()).sum();
    let blocks = samples.iter().map(|sample| sample.alloc_count.unwrap() - sample.free_count.unwrap()).sum();
    (bytes, blocks)
}

#[test]
fn counters_and_heaps_agree_with_reports() {
    for (file, snapshot) in read_snapshots() {
        let read = read(&snapshot);
        for device in snapshot.device_ids() {
            let Some(timeline) = DeviceTimeline::of(&snapshot, device) else { continue };
            let (heading, expected) = (timeline.format_heading(), Expected::of(&snapshot, device));
            let requested = &read.counters[&format!("{heading}: requested")];
            let highest = requested.iter().map(|(_, bytes)| *bytes as u64).max();
            if timeline.estimated {
                // If small blocks were sampled, the series is an estimate, whereas reports use the recorder's exact
                // count.
                assert!(highest.is_some(), "{file}, {heading}");
                continue;
            }
            assert_eq!(highest, Some(expected.peak), "{file}, {heading}");
            assert_eq!(
                requested.last().map(|(_, bytes)| *bytes as u64),
                Some(expected.at_end.0),
                "{file}, {heading}"
            );
            if let Some(reserved) = read.counters.get(&format!("{}: reserved", timeline.name)) {
                let highest = reserved.iter().map(|(_, bytes)| *bytes as u64).max();
                assert_eq!(highest, Some(expected.reserved), "{file}, {heading}");
            }
            let Some(dumps) = read.dumps.get(&heading) else {
                assert_eq!(expected.peak, 0, "{file}, {heading}");
                continue;
            };
            // If the numbers of blocks are estimates, each stack's number is rounded separately.
            let tolerance = if timeline.estimated { timeline.origins.len() as u64 } else { 0 };
            let is_close = |(bytes, blocks): (u64, u64), expected: (u64, u64)| {
                bytes == expected.0 && blocks.abs_diff(expected.1) <= tolerance
            };
            let (_, end) = dumps.last().unwrap();
            assert!(is_close(live_sums(end), expected.at_end), "{file}, {heading}: {:?}", live_sums(end));
            let peak = dumps.iter().map(|(_, samples)| live_sums(samples)).max().unwrap();
            assert!(is_close(peak, expected.at_peak), "{file}, {heading}: {peak:?}");
            let older = if requested[0].1 > 0 { live_sums(&dumps[0].1).0 } else { 0 };
            assert_eq!(older, requested[0].1 as u64, "{file}, {heading}");
            let allocated: u64 = end.iter().map(|sample| sample.self_allocated.unwrap()).sum();
            assert_eq!(allocated - older, expected.allocated.0, "{file}, {heading}");
            assert!(dumps.is_sorted_by_key(|dump| dump.0));
        }
    }
}

#[test]
fn numbers_of_stack_never_decrease_from_dump_to_dump() {
    for (file, snapshot) in read_snapshots() {
        for (heap, dumps) in read(&snapshot).dumps {
            for pair in dumps.windows(2) {
                assert_eq!(pair[0].1.len(), pair[1].1.len(), "{file}, {heap}");
                for (before, after) in pair[0].1.iter().zip(&pair[1].1) {
                    assert_eq!(before.callstack_id, after.callstack_id);
                    assert!(before.self_allocated <= after.self_allocated, "{file}, {heap}");
                    assert!(before.self_freed <= after.self_freed, "{file}, {heap}");
                }
            }
        }
    }
}

#[test]
fn all_events_are_on_their_tracks_at_their_times() {
    let read = read(&full_recording());
    let track = |name: &str| read.counters[name].clone();
    let older = 500 + 300;
    assert_eq!(
        track("device 0: requested"),
        [
            (0, older),
            (20, older + 4096),
            (30, older + 5096),
            (40, older + 1000),
            (50, 500 + 1000),
            (60, 500 + 3000)
        ]
    );
    assert_eq!(track("device 0: reserved"), [(0, 0), (10, 8192)]);
    assert_eq!(track("device 0: free"), [(65, 1234), (70, 77)]);
    let slices: Vec<_> = read
        .slices
        .iter()
        .map(|(track, depth, name, from, to)| (&track[..], *depth, &name[..], *from, *to))
        .collect();
    assert_eq!(
        slices,
        [
            ("main (thread 4242)", 1, "matmul", 20, 20),
            ("main (thread 4242)", 0, "model", 10, 40),
            ("main (thread 4242)", 0, "optimizer", 60, 60),
            ("worker (thread 4243)", 0, "model", 30, 70),
            ("main (thread 4242): step", 0, "step", 35, 65),
        ]
    );
    let instants: Vec<_> =
        read.instants.iter().map(|(track, name, at)| (&track[..], &name[..], *at)).collect();
    assert_eq!(
        instants,
        [
            ("device 0: out of memory", "out of memory", 70),
            ("main (thread 4242): step", "step", 35),
            ("main (thread 4242): step", "step", 65),
        ]
    );
    assert!(
        read.stacks
            .values()
            .any(|stack| stack.last().is_some_and(|name| name == "(allocated before the first event)"))
    );
}

#[test]
fn crossing_ranges_are_on_separate_tracks() {
    let (_, snapshot) =
        read_snapshots().into_iter().find(|(file, _)| file.ends_with("annotated.pickle")).unwrap();
    let read = read(&snapshot);
    assert!(!read.slices.is_empty());
    for (track, ..) in &read.slices {
        assert!(track.ends_with("profiler"), "{track}");
    }
}
